package node

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/engine/stage"
	"github.com/hdmlp/hdmlp/internal/source"
)

// on runs a rank over [from, to), as a process whose audit sum so far is audit. It returns what was
// delivered, and the new sum.
func on(r *Rank, from, to at, audit uint64) (map[at][]uint32, uint64, error) {
	out := map[at][]uint32{}
	err := r.Run(context.Background(), from.epoch, from.step, func(b *stage.Batch) error {
		if (at{b.Epoch, b.Step}) == to {
			return errEnough
		}
		out[at{b.Epoch, b.Step}] = slices.Clone(b.IDs)
		for _, slot := range b.Slots {
			if _, err := r.Return(slot); err != nil {
				return err
			}
		}
		audit += b.Audit
		r.Yielded(b.Epoch, b.Step, stage.Stall{}, audit)
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	} else if err != nil {
		r.Raised()
	}
	return out, audit, err
}

// TestUnusableSamplesAreLeftOutOrSubstituted checks that a sample that a process cannot decode is
// left out or substituted from the current batch on, for all ranks, and that the epoch's audit is
// complete.
func TestUnusableSamplesAreLeftOutOrSubstituted(t *testing.T) {
	for _, policy := range []string{"skip", "substitute"} {
		t.Run(policy, func(t *testing.T) {
			var w world
			n := w.node()
			ranks := []*Rank{
				open(t, n, message(0, 2, set("on_error", policy))),
				open(t, n, message(1, 2, set("on_error", policy))),
			}
			r := ranks[0]
			_, audit, err := on(r, at{0, 0}, at{0, 2}, 0)
			if err != nil {
				t.Fatal(err)
			}
			x, err := r.Explain(0, 2, 0)
			if err != nil {
				t.Fatal(err)
			}
			bad := x.IDs[3]
			if got, err := r.Unusable(int(bad), "not an image"); got != policy || err != nil {
				t.Fatalf("policy %q, %v", got, err)
			}
			rest, _, err := on(r, at{0, 2}, at{1, 0}, audit)
			if err != nil {
				t.Fatal(err)
			}
			got := rest[at{0, 2}]
			if want := map[string]int{"skip": 4, "substitute": 5}[policy]; len(got) != want ||
				slices.Contains(got, uint32(bad)) {
				t.Errorf("%v of %v without %d", got, x.IDs, bad)
			}
			if _, _, err := on(ranks[1], at{0, 0}, at{1, 0}, 0); err != nil {
				t.Fatal(err)
			}
			a, err := r.Audit(t.Context(), 0)
			if err != nil || !a.Complete || len(rest) != r.entry.open.Order.Stream().Steps()-2 {
				t.Errorf("%+v, %v, after %d batches", a, err, len(rest))
			}
			together(ranks, func(r *Rank) {
				later, _, err := on(r, at{1, 0}, at{2, 0}, 0)
				for here, ids := range later {
					if slices.Contains(ids, uint32(bad)) {
						t.Errorf("%v has sample %d", here, bad)
					}
				}
				if err != nil {
					t.Error(err)
				}
			})
			faults := r.Report().Faults
			if len(faults) != 1 || faults[0].Sample != int(bad) || faults[0].Count < 2 ||
				faults[0].Policy != policy ||
				faults[0].Reason != "the file cannot be decoded and transformed in Python: not an image" {
				t.Errorf("faults %+v", faults)
			}
			for _, sample := range []int{-1, samples} {
				if _, err := r.Unusable(sample, ""); err == nil {
					t.Errorf("sample %d: no error", sample)
				}
			}
			for _, r := range ranks {
				r.Close()
			}
			w.close(t, n)
		})
	}
}

// TestEpochIsCountedAgainAfterAJump checks that the epoch is counted again if the process does not
// continue with the batch after its last one.
func TestEpochIsCountedAgainAfterAJump(t *testing.T) {
	var w world
	n := w.node()
	r := open(t, n, message(0, 1, set("on_error", "skip")))
	if _, _, err := on(r, at{0, 0}, at{0, 2}, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Unusable(5, "not an image"); err != nil {
		t.Fatal(err)
	}
	for _, from := range []at{{0, 3}, {0, 0}, {1, 2}} {
		if _, _, err := on(r, from, at{from.epoch + 1, 0}, 0); err != nil {
			t.Fatal(err)
		}
		if a, err := r.Audit(t.Context(), from.epoch); err != nil || !a.Complete {
			t.Errorf("from %v: %+v, %v", from, a, err)
		}
	}
	r.Close()
	w.close(t, n)
}

// TestUnusableSampleEndsAllRanks checks that under policy raise the rank ends at the batch with an
// error that names the sample, each time, and that the other ranks end too.
func TestUnusableSampleEndsAllRanks(t *testing.T) {
	var w world
	n := w.node()
	ranks := []*Rank{open(t, n, message(0, 2)), open(t, n, message(1, 2))}
	x, err := ranks[0].Explain(0, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := on(ranks[0], at{0, 0}, at{0, 1}, 0); err != nil {
		t.Fatal(err)
	}
	if policy, err := ranks[0].Unusable(int(x.IDs[0]), "not an image"); policy != "raise" ||
		err != nil {
		t.Fatalf("%q, %v", policy, err)
	}
	for range 2 {
		_, _, err = on(ranks[0], at{0, 1}, at{1, 0}, 0)
		var sample *source.SampleError
		if !errors.As(err, &sample) || sample.ID != int(x.IDs[0]) ||
			!errors.Is(err, source.ErrPython) {
			t.Fatalf("%v", err)
		}
	}
	if out, _, err := on(ranks[1], at{0, 0}, at{1, 0}, 0); err == nil ||
		!strings.Contains(err.Error(), "rank 0 stopped") || len(out) > 1 {
		t.Errorf("the other rank: %v, after %v", err, out)
	}
	for _, r := range ranks {
		r.Close()
	}
	w.close(t, n)
}
