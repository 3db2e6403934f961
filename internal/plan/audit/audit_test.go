package audit

import (
	"slices"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/plan/access"
)

const steps = 5

// epochOf is an epoch of 5 steps of two ranks, over 40 samples.
func epochOf(t *testing.T, scheme access.Scheme, number int) *access.Epoch {
	t.Helper()
	s, err := access.New(access.Spec{
		Samples:     40,
		Seed:        7,
		WorldSize:   2,
		GlobalBatch: 8,
		Shuffle:     access.Torch,
		Scheme:      scheme,
		Tail:        access.Pad,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s.Epoch(number)
}

// given is what a rank is given in the epoch from a step on, without one sample.
func given(e *access.Epoch, rank, from, without int) (d Delivered) {
	for step := from; step < steps; step++ {
		for _, id := range e.Batch(nil, rank, step) {
			if int(id) == without {
				d.Missing += access.Mix(e.Number(), int(id))
				continue
			}
			d.Hash += access.Mix(e.Number(), int(id))
			d.Samples++
		}
	}
	return d
}

const nothing = -1

// TestCompare: complete is what delivered each sample once, from one step on.
func TestCompare(t *testing.T) {
	for _, scheme := range []access.Scheme{access.Strided, access.Whole} {
		e := epochOf(t, scheme, 3)
		part := func(rank, from, without int) Part {
			return Part{
				Rank:      rank,
				From:      from,
				Finished:  true,
				Delivered: given(e, rank, from, without),
			}
		}
		all := int64(40)
		if scheme == access.Whole {
			all = 80
		}
		twice := part(1, 0, nothing)
		twice.Hash += access.Mix(3, 5)
		swapped := part(1, 0, nothing)
		swapped.Hash += access.Mix(4, 5) - access.Mix(3, 5)
		untold := part(1, 0, int(e.Batch(nil, 1, 2)[0]))
		untold.Missing = 0
		claims := part(1, 2, nothing)
		claims.From = 0
		for what, c := range map[string]struct {
			parts    []Part
			complete bool
			samples  int64
			missing  []int
		}{
			"everything": {
				[]Part{part(0, 0, nothing), part(1, 0, nothing)},
				true,
				all,
				[]int{},
			},
			"from the middle on": {
				[]Part{part(0, 2, nothing), part(1, 2, nothing)},
				true,
				all * 3 / 5,
				[]int{},
			},
			"a sample twice": {
				[]Part{part(0, 0, nothing), twice},
				false, all,
				[]int{},
			},
			"a sample of another epoch": {
				[]Part{part(0, 0, nothing), swapped},
				false, all,
				[]int{},
			},
			"from different steps": {
				[]Part{part(0, 0, nothing), part(1, 2, nothing)},
				false,
				all/2 + all*3/10,
				[]int{},
			},
			"from different steps, with what one of them should have": {
				[]Part{claims, part(0, 2, nothing)},
				false,
				all * 3 / 5,
				[]int{},
			},
			"ranks that are not through": {
				[]Part{{Rank: 1, Left: true}, {Rank: 0}},
				false, 0,
				[]int{0, 1},
			},
			"one that is not through": {
				[]Part{part(0, 0, nothing), {Rank: 1}},
				false, all / 2,
				[]int{1},
			},
			"without one, and not a word": {
				[]Part{part(0, 0, nothing), untold},
				false, all - 1,
				[]int{},
			},
		} {
			r := Compare(e, c.parts)
			if r.Epoch != 3 || r.Complete != c.complete || r.Samples != c.samples ||
				!slices.Equal(r.Missing, c.missing) || r.Missing == nil {
				t.Errorf("%s: %s: %+v", scheme, what, r)
			}
			if (r.Why != "") != strings.HasPrefix(what, "from different steps") {
				t.Errorf("%s: %s: why: %q", scheme, what, r.Why)
			}
			if c.complete != (r.Expected == r.Delivered) && len(c.missing) == 0 &&
				!strings.HasPrefix(what, "from different steps") {
				t.Errorf("%s: %s: expected %s, delivered %s", scheme, what, r.Expected, r.Delivered)
			}
		}
		for without := range 40 { // left out by the policy for errors, and said so
			if r := Compare(e, []Part{part(0, 0, without), part(1, 0, without)}); !r.Complete ||
				r.Samples != all-all/40 {
				t.Errorf("%s: without %d: %+v", scheme, without, r)
			}
		}
	}
}
