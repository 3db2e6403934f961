package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hdmlp/hdmlp/internal/engine/stage"
	"github.com/hdmlp/hdmlp/internal/lab/testkit"
	"github.com/hdmlp/hdmlp/internal/node/request"
	"github.com/hdmlp/hdmlp/internal/node/request/requesttest"
)

// partOf returns a change of a request to one that gives a rank's part, with batches of this size,
// from epoch first on.
func partOf(t *testing.T, batch, first int, ids []int32) func(*request.Open) {
	return func(m *request.Open) {
		m.Stream.Shuffle = "given"
		m.Stream.Epochs = 0
		m.Stream.Seed = nil
		m.Stream.Given = &request.Given{
			Batch:   batch,
			Entries: len(ids),
			Epochs:  1,
			First:   first,
			Seed:    uint64(100 + m.Rank),
		}
		m.Stream.List = requesttest.List(t, ids)
	}
}

// apartFrom returns a change of a request to one of a rank that gives no part.
func apartFrom(t *testing.T, why string) func(*request.Open) {
	return func(m *request.Open) {
		partOf(t, 0, 0, nil)(m)
		m.Stream.Given.Apart = why
	}
}

// sampled returns a part of an epoch: n samples, with repeats, as a user's sampler may yield them.
func sampled(rank, epoch, n int) []int32 {
	rng := rand.New(rand.NewPCG(uint64(rank), uint64(epoch)))
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(rng.IntN(samples))
	}
	return ids
}

// openParts opens a job with each ranks on every node. change returns the changes for a rank. The
// errors are by rank.
func (c *nodes) openParts(each int,
	change func(rank int) []func(*request.Open),
) ([]*Rank, []error) {
	return c.openUntil(c.t.Context(), func() {}, each, change)
}

// mustOpenParts opens a job whose ranks have n samples per epoch, in batches of this size.
func (c *nodes) mustOpenParts(each, batch, n int, change ...func(*request.Open)) []*Rank {
	c.t.Helper()
	// Otherwise the other nodes would wait until start_timeout for one that cannot open the job.
	ctx, cancel := context.WithCancel(c.t.Context())
	c.t.Cleanup(cancel)
	ranks, errs := c.openUntil(ctx, cancel, each, func(r int) []func(*request.Open) {
		return append(slices.Clone(change), partOf(c.t, batch, 0, sampled(r, 0, n)))
	})
	if err := errors.Join(errs...); err != nil {
		c.t.Fatal(err)
	}
	return ranks
}

// trained makes a rank give its part of an epoch, unless that came with OPEN, and take its batches
// from a step on. It checks that these are the rank's part.
func trained(t *testing.T, r *Rank, epoch, step, batch, n int) {
	t.Helper()
	ids := sampled(r.Number(), epoch, n)
	if err := give(t, r, epoch, ids); err != nil {
		t.Error(err)
	}
	if err := r.Check(epoch, step); err != nil {
		t.Error(err)
	}
	r.Wait() // before policy naive reads anything
	got := consume(t, r, at{epoch, step}, end)
	steps := (n + batch - 1) / batch
	if len(got) != steps-step {
		t.Errorf("rank %d got %d batches of epoch %d, want %d", r.Number(), len(got), epoch,
			steps-step)
	}
	for here, batchIDs := range got {
		if want := ids[here.step*batch : min((here.step+1)*batch, n)]; here.epoch != epoch ||
			!slices.Equal(batchIDs, want) {
			t.Errorf("rank %d, %+v: samples %v, want %v", r.Number(), here, batchIDs, want)
		}
	}
}

// TestRanksGetTheirOwnParts checks that ranks on several nodes that give each epoch's order
// together each get their own part, under each policy, with a plan made at once and in the
// background, and that the audit is over all of them.
func TestRanksGetTheirOwnParts(t *testing.T) {
	const (
		each   = 2
		batch  = 3
		n      = 10
		epochs = 4
	)
	for _, policy := range keepingOrder() {
		for _, background := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/background=%v", policy.Name(), background), func(t *testing.T) {
				c := newNodes(t, 2, background)
				ranks := c.mustOpenParts(each, batch, n, set("policy", policy.Name()))
				for _, r := range ranks {
					if o := r.Opened(); o.Seed != 100 || o.Steps != 4 || o.RankSamples != n ||
						o.Positions != n*len(ranks) {
						t.Errorf("rank %d opened %+v", r.Number(), o)
					}
				}
				together(ranks, func(r *Rank) {
					for e := range epochs {
						trained(t, r, e, 0, batch, n)
						if a, err := r.Audit(t.Context(), e); err != nil || !a.Complete ||
							a.Samples != n*int64(len(ranks)) {
							t.Errorf("rank %d: audit of epoch %d: %+v, %v", r.Number(), e, a, err)
						}
					}
				})
				for _, r := range ranks {
					known := r.entry.open.Order.Stream().GivenEpochs()
					if !slices.Equal(known, []int{epochs - 2, epochs - 1}) {
						t.Errorf("epochs %v are known after %d", known, epochs)
					}
					if p := r.Report(); p.GlobalBatch != batch*len(ranks) ||
						len(p.Demands) != epochs {
						t.Errorf("report: %+v", p)
					}
				}
				closeAll(ranks)
				c.close()
			})
		}
	}
}

// TestPartsAreReadOnce checks that if the nodes together can hold the dataset, what several epochs
// need is read from the source once, whichever epoch and node needs it first.
func TestPartsAreReadOnce(t *testing.T) {
	const (
		each   = 2
		batch  = 3
		n      = 8
		epochs = 5
	)
	for _, background := range []bool{false, true} {
		c := newNodes(t, 3, background)
		needed := map[int32]bool{}
		ranks := c.mustOpenParts(each, batch, n, set("memory", "14000B"))
		for _, r := range ranks {
			for e := range epochs {
				for _, k := range sampled(r.Number(), e, n) {
					needed[k] = true
				}
			}
		}
		for e := range epochs { // together, as in training
			together(ranks, func(r *Rank) { trained(t, r, e, 0, batch, n) })
		}
		if total, most := c.read(); total != len(needed) || most != 1 {
			t.Errorf("background=%v: the source was read %d times, one sample %d times; want %d, "+
				"and 1", background, total, most, len(needed))
		}
		closeAll(ranks)
		c.close()
	}
}

// TestLaterPartsWaitForThePlan checks that an epoch that may need samples that the first one did
// not begins only when it is known which node keeps them.
func TestLaterPartsWaitForThePlan(t *testing.T) {
	const (
		batch  = 3
		n      = 8
		epochs = 4
	)
	c := newNodes(t, 2, true)
	free := hold(nil, c.list...)
	ranks := c.mustOpenParts(1, batch, n, set("memory", "21000B"))
	needed := map[int32]bool{}
	for _, r := range ranks {
		for e := range epochs {
			for _, k := range sampled(r.Number(), e, n) {
				needed[k] = true
			}
		}
	}
	together(ranks, func(r *Rank) { trained(t, r, 0, 0, batch, n) })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, r := range ranks {
		if err := r.entry.open.Job.Planner().Gate()(ctx, 1, 0); !errors.Is(err, context.Canceled) {
			t.Errorf("rank %d may begin epoch 1: %v", r.Number(), err)
		}
	}
	close(free)
	for e := 1; e < epochs; e++ {
		together(ranks, func(r *Rank) { trained(t, r, e, 0, batch, n) })
	}
	if total, most := c.read(); total != len(needed) || most != 1 {
		t.Errorf("the source was read %d times, one sample %d times; want %d, and 1", total, most,
			len(needed))
	}
	closeAll(ranks)
	c.close()
}

// TestPartsBeginAnywhere checks that a job resumes in the middle of an epoch, and that ranks may
// break off an epoch and begin it again, or go on with another one, without waiting for each other.
func TestPartsBeginAnywhere(t *testing.T) {
	const batch, n = 2, 7
	c := newNodes(t, 2, false)
	ranks, errs := c.openParts(2, func(r int) []func(*request.Open) {
		return []func(*request.Open){partOf(t, batch, 5, sampled(r, 5, n))}
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	together(ranks, func(r *Rank) {
		trained(t, r, 5, 2, batch, n)
		trained(t, r, 5, 0, batch, n) // again
	})
	together(ranks, func(r *Rank) {
		if err := give(t, r, 6, sampled(r.Number(), 6, n)); err != nil {
			t.Error(err)
		}
		consume(t, r, at{6, 0}, at{6, 1 + r.Number()}) // breaks off
	})
	together(ranks, func(r *Rank) { trained(t, r, 9, 0, batch, n) }) // all jump
	if a, err := ranks[3].Audit(t.Context(), 9); err != nil || !a.Complete {
		t.Errorf("%+v, %v", a, err)
	}
	closeAll(ranks)
	c.close()
}

// TestEarlyRankWaitsForParts checks that a rank that begins an epoch before the others waits until
// they come, while they finish theirs, and that a part given again is compared.
func TestEarlyRankWaitsForParts(t *testing.T) {
	const batch, n = 2, 6
	c := newNodes(t, 2, false)
	ranks := c.mustOpenParts(1, batch, n)
	early, late := ranks[0], ranks[1]
	trained(t, early, 0, 0, batch, n)
	if err := early.Check(1, 0); err == nil ||
		!strings.Contains(err.Error(), "epoch 1 was not given") {
		t.Errorf("an epoch that the rank has not given: %v", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		trained(t, early, 1, 0, batch, n)
	}()
	testkit.Until(t, "the early rank gives its part", func() bool {
		return early.Check(1, 0) == nil
	})
	if err := give(t, early, 1, sampled(0, 1, n)); err != nil {
		t.Errorf("the same order again: %v", err)
	}
	if x, err := early.Explain(1, 0, -1); err == nil {
		t.Errorf("explained %+v", x)
	}
	if turn, missing := late.entry.turns.Missing(); turn != 1 || !slices.Equal(missing, []int{1}) {
		t.Errorf("turn %d waits for ranks %v of node 1", turn, missing)
	}
	missing := early.entry.open.Coordinator.Missing(t.Context(), 1)
	if !slices.Equal(missing, []int{1}) {
		t.Errorf("node 1 reports that ranks %v are missing", missing)
	}
	if missing := early.entry.open.Coordinator.Missing(t.Context(), 2); len(missing) > 0 {
		t.Errorf("for a later turn node 1 reports that ranks %v are missing", missing)
	}
	trained(t, late, 0, 0, batch, n)
	select {
	case <-done:
		t.Error("the early rank did not wait")
	default:
	}
	trained(t, late, 1, 0, batch, n)
	<-done
	if err := give(t, early, 1, sampled(0, 2, n)); err == nil ||
		!strings.Contains(err.Error(), "epoch 1 is given again with another order") {
		t.Errorf("another order: %v", err)
	}
	closeAll(ranks)
	c.close()
}

// TestLargePartsArriveInPieces checks that an order that is sent in several pieces arrives
// unchanged.
func TestLargePartsArriveInPieces(t *testing.T) {
	const n = 5 << 18 // 5 MiB per rank, more than a node may send at a time
	c := newNodes(t, 2, false)
	ranks := c.mustOpenParts(1, 1<<10, n, set("staging_buffer", "8MiB"), func(m *request.Open) {
		m.Arguments["prefetch_batches"] = 1.0
	})
	for _, r := range ranks {
		e := r.entry.open.Order.Stream().Epoch(0)
		for of := range ranks {
			want := sampled(of, 0, n)
			for i, k := range want {
				if e.At(of, i) != int(k) {
					t.Fatalf("node %d has %d for sample %d of rank %d, want %d", r.Number(),
						e.At(of, i), i, of, k)
				}
			}
		}
	}
	closeAll(ranks)
	c.close()
}

// TestOccurrencesOverRanks checks that a sample that two ranks have gets different random numbers
// on each.
func TestOccurrencesOverRanks(t *testing.T) {
	c := newNodes(t, 2, false)
	ranks, errs := c.openParts(1, func(int) []func(*request.Open) {
		return []func(*request.Open){partOf(t, 2, 0, []int32{7, 7, 9, 7})}
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	seen := map[[2]int32]int{}
	for _, r := range ranks {
		for step := range r.entry.open.Order.Stream().Steps() {
			e := r.entry.open.Order.Stream().Epoch(0)
			for i, occurrence := range e.Occurrence(r.Number(), step) {
				seen[[2]int32{e.Batch(nil, r.Number(), step)[i], occurrence}]++
			}
		}
	}
	want := map[[2]int32]int{{9, 0}: 1, {9, 1}: 1}
	for i := range int32(6) {
		want[[2]int32{7, i}] = 1
	}
	if !maps.Equal(seen, want) {
		t.Errorf("occurrences %v, want %v", seen, want)
	}
	closeAll(ranks)
	c.close()
}

// TestEpochGivenDuringARunTakesAnotherRun checks that a rank that gives its next epoch while its
// run still waits takes that epoch in another run, and no batch twice.
func TestEpochGivenDuringARunTakesAnotherRun(t *testing.T) {
	const batch, n = 3, 6
	c := newNodes(t, 2, false)
	ranks := c.mustOpenParts(1, batch, n)
	var batches atomic.Int64
	together(ranks, func(r *Rank) {
		for e := range 20 {
			if e > 0 {
				if err := give(t, r, e, sampled(r.Number(), e, n)); err != nil {
					t.Error(err)
				}
			}
			err := r.Run(t.Context(), e, 0, func(b *stage.Batch) error {
				for _, slot := range b.Slots {
					if _, err := r.Return(slot); err != nil {
						return err
					}
				}
				if b.Epoch != e {
					return fmt.Errorf("batch %d of epoch %d in a run of epoch %d", b.Step, b.Epoch,
						e)
				}
				batches.Add(1)
				r.Yielded(b.Epoch, b.Step, stage.Stall{}, 0)
				return nil
			})
			if err != nil {
				t.Errorf("rank %d, epoch %d: %v", r.Number(), e, err)
				return
			}
		}
	})
	if k := batches.Load(); k != 2*20*2 {
		t.Errorf("%d batches, want %d", k, 2*20*2)
	}
	closeAll(ranks)
	c.close()
}
