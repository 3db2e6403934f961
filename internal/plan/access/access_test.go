package access

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// TestOneTruth: Batch, Global, At, Find, Reads, Readers, Audit and the counts say the same.
func TestOneTruth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawStream(t)
		spec := s.Spec()
		e := s.Epoch(rapid.IntRange(0, drawnEpochs-1).Draw(t, "epoch"))

		type read struct {
			Read
			sample int
		}
		var reads []read
		var audit uint64 // from the step on
		from := rapid.IntRange(0, s.Steps()).Draw(t, "from")
		delivered := 0
		next := make([]int, spec.WorldSize)
		for step := range s.Steps() {
			var shares []int32
			for r := range spec.WorldSize {
				batch := e.Batch(nil, r, step)
				for _, k := range batch {
					reads = append(reads, read{Read{r, next[r], step}, int(k)})
					if at := e.At(r, next[r]); at != int(k) {
						t.Fatalf("At(%d, %d) = %d, the batch has %d", r, next[r], at, k)
					}
					next[r]++
					if step >= from {
						audit += Mix(e.Number(), int(k))
					}
				}
				if shares = append(shares, batch...); spec.Scheme == Whole {
					shares = batch
				}
			}
			global := e.Global(nil, step)
			delivered += len(global)
			if len(global) != s.BatchSize(step) {
				t.Fatalf("step %d has %d positions, BatchSize says %d", step, len(global),
					s.BatchSize(step))
			}
			if spec.Scheme != Strided && !slices.Equal(global, shares) {
				t.Fatalf("step %d: the ranks read %v, the batch is %v", step, shares, global)
			}
			slices.Sort(global)
			slices.Sort(shares)
			if !slices.Equal(global, shares) {
				t.Fatalf("step %d: the ranks read %v, the batch is %v", step, shares, global)
			}
		}
		if delivered != s.Delivered() {
			t.Fatalf("%d positions delivered, Delivered says %d", delivered, s.Delivered())
		}
		if audit != e.Audit(from) {
			t.Fatalf("audit %x, the ranks' sums give %x", e.Audit(from), audit)
		}
		for r, n := range next {
			if n != s.RankSamples(r) {
				t.Fatalf("rank %d read %d samples, RankSamples says %d", r, n, s.RankSamples(r))
			}
		}

		want := make([]map[Read]bool, spec.Samples)
		for _, r := range reads {
			if want[r.sample] == nil {
				want[r.sample] = map[Read]bool{}
			}
			want[r.sample][r.Read] = true
		}
		once := map[int32]bool{} // those that the epoch has
		for k := range spec.Samples {
			if len(want[k]) > 0 && !e.Has(k) {
				t.Fatalf("Has(%d) is false, and it is read at %v", k, want[k])
			}
			var got map[Read]bool
			for i, p := range e.Find(k) {
				if got == nil {
					got = map[Read]bool{}
				}
				if i > 0 && !s.Repeats() && spec.Scheme != Whole {
					t.Fatalf("sample %d is read more than once: %v", k, e.Find(k))
				}
				got[p] = true
			}
			if e.Has(k) {
				once[int32(k)] = true
			}
			if diff := cmp.Diff(want[k], got); diff != "" {
				t.Fatalf("Find(%d) (-want +got):\n%s", k, diff)
			}
		}

		if n := len(once); spec.Subset != nil &&
			n != len(slices.Compact(slices.Sorted(slices.Values(spec.Subset)))) {
			t.Fatalf("the epoch has %d samples of the subset %v", n, spec.Subset)
		}

		if spec.Tail != Pad && spec.Scheme != Whole { // else positions come again
			occurs := map[[2]int32]bool{}
			for step := range s.Steps() {
				for r := range spec.WorldSize {
					batch, occurrence := e.Batch(nil, r, step), e.Occurrence(r, step)
					if occurrence == nil {
						occurrence = make([]int32, len(batch))
					}
					if len(occurrence) != len(batch) {
						t.Fatalf("%d occurrences of %d samples", len(occurrence), len(batch))
					}
					for i, k := range batch {
						if o := occurrence[i]; occurs[[2]int32{k, o}] || o < 0 ||
							int(o) >= len(e.appendPositions(nil, int(k))) {
							t.Fatalf("occurrence %d of sample %d comes again, or it has "+
								"not so many", o, k)
						}
						occurs[[2]int32{k, occurrence[i]}] = true
					}
				}
			}
		}

		type pair struct {
			rank   int
			sample int32
		}
		byPair := func(x, y pair) int { return 1000*(x.rank-y.rank) + int(x.sample-y.sample) }
		var all, inOrder, dealt []pair
		for _, r := range reads {
			all = append(all, pair{r.Rank, int32(r.sample)})
		}
		for r, k := range e.Reads() {
			inOrder = append(inOrder, pair{r, k})
		}
		if spec.Scheme == Strided && spec.GlobalBatch >= spec.WorldSize {
			i := 0
			for step := range s.Steps() {
				for _, k := range e.Global(nil, step) {
					if inOrder[i].sample != k {
						t.Fatalf("Reads yields %d at %d, the position has %d", inOrder[i].sample, i,
							k)
					}
					i++
				}
			}
		}
		for step := range s.Steps() {
			global := e.Global(nil, step)
			positions, ranks := s.Deal(step)
			for i, p := range positions {
				if spec.Scheme != Whole {
					dealt = append(dealt, pair{int(ranks[i]), global[p]})
					continue
				}
				for r := range spec.WorldSize {
					dealt = append(dealt, pair{r, global[p]})
				}
			}
		}
		if !slices.Equal(inOrder, dealt) {
			t.Fatalf("Deal gives %v, Reads %v", dealt, inOrder)
		}
		slices.SortFunc(all, byPair)
		slices.SortFunc(inOrder, byPair)
		if !slices.Equal(all, inOrder) {
			t.Fatalf("Reads yields %v, the batches have %v", inOrder, all)
		}
	})
}

// TestFuture compares Frequencies, FirstAccess and NextAccess with a plain replay.
func TestFuture(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawStream(t)
		ranks := []int{0}
		if w := s.Spec().WorldSize; w > 2 {
			ranks = append(ranks, w-1)
		}
		const from, to = 1, 4
		freq := make([]uint32, s.Spec().Samples)
		next := map[int32]int{}
		for n := from; n < to; n++ {
			for _, r := range ranks {
				for i := range s.RankSamples(r) {
					k := int32(s.Epoch(n).At(r, i))
					freq[k]++
					if _, ok := next[k]; !ok {
						next[k] = n
					}
				}
			}
		}
		if diff := cmp.Diff(freq, s.Frequencies(ranks, from, to)); diff != "" {
			t.Fatal(diff)
		}
		order := s.FirstAccess(ranks, from, to)
		if len(order) != len(next) {
			t.Fatalf("FirstAccess has %d samples, %d are read", len(order), len(next))
		}
		for i, k := range order {
			if i > 0 && next[k] < next[order[i-1]] {
				t.Fatalf("FirstAccess: sample %d, first read in epoch %d, after %d, first read "+
					"in epoch %d", k, next[k], order[i-1], next[order[i-1]])
			}
		}
		for k := range s.Spec().Samples {
			n, at, ok := s.NextAccess(ranks, k, from, to)
			want, read := next[int32(k)]
			if ok != read || ok && (n != want || s.Epoch(n).At(at.Rank, at.Index) != k) {
				t.Fatalf("NextAccess(%d) = %d, %v, %v; it is read first in epoch %d: %v", k, n, at,
					ok, want, read)
			}
		}
	})
}

// TestGeometry pins the position space and the schemes down with figures worked out by hand.
func TestGeometry(t *testing.T) {
	for _, c := range []struct {
		spec             Spec
		steps, delivered int
		rankSamples      []int
		lastBatch        [][]int32
	}{
		{
			spec: Spec{Samples: 10, WorldSize: 4, GlobalBatch: 8, Shuffle: Sequential}, steps: 2,
			delivered: 12, rankSamples: []int{3, 3, 3, 3},
			lastBatch: [][]int32{{8}, {9}, {0}, {1}},
		},
		{
			spec: Spec{
				Samples:     10,
				WorldSize:   4,
				GlobalBatch: 8,
				Shuffle:     Sequential,
				DropLast:    true,
			}, steps: 1, delivered: 8, rankSamples: []int{2, 2, 2, 2},
			lastBatch: [][]int32{{0, 4}, {1, 5}, {2, 6}, {3, 7}},
		},
		{
			spec:  Spec{Samples: 10, WorldSize: 4, GlobalBatch: 8, Shuffle: Sequential, Tail: Keep},
			steps: 2, delivered: 10, rankSamples: []int{3, 3, 2, 2},
			lastBatch: [][]int32{{8}, {9}, nil, nil},
		},
		{
			spec:  Spec{Samples: 11, WorldSize: 4, GlobalBatch: 6, Shuffle: Sequential, Tail: Drop},
			steps: 2, delivered: 8, rankSamples: []int{3, 3, 1, 1},
			lastBatch: [][]int32{{6}, {7}, nil, nil},
		},
		{
			spec: Spec{
				Samples:     10,
				WorldSize:   4,
				GlobalBatch: 10,
				Shuffle:     Sequential,
				Tail:        Keep,
				Scheme:      Uniform,
			}, steps: 1, delivered: 10, rankSamples: []int{3, 3, 3, 1},
			lastBatch: [][]int32{{0, 1, 2}, {3, 4, 5}, {6, 7, 8}, {9}},
		},
		{
			spec: Spec{
				Samples:     5,
				WorldSize:   4,
				GlobalBatch: 5,
				Shuffle:     Sequential,
				Tail:        Keep,
				Scheme:      Uniform,
			}, steps: 1, delivered: 5, rankSamples: []int{2, 2, 1, 0},
			lastBatch: [][]int32{{0, 1}, {2, 3}, {4}, nil},
		},
		{
			spec: Spec{
				Samples:     10,
				WorldSize:   4,
				GlobalBatch: 10,
				Shuffle:     Sequential,
				Tail:        Keep,
				Scheme:      Imbalanced,
			}, steps: 1, delivered: 10, rankSamples: []int{4, 4, 1, 1},
			lastBatch: [][]int32{{0, 1, 2, 3}, {4, 5, 6, 7}, {8}, {9}},
		},
		{
			spec: Spec{
				Samples:     3,
				WorldSize:   2,
				GlobalBatch: 2,
				Shuffle:     Sequential,
				Tail:        Keep,
				Scheme:      Whole,
			}, steps: 2, delivered: 3, rankSamples: []int{3, 3},
			lastBatch: [][]int32{{2}, {2}},
		},
		{
			spec: Spec{Samples: 3, WorldSize: 8, GlobalBatch: 8, Shuffle: Sequential}, steps: 1,
			delivered: 8, rankSamples: []int{1, 1, 1, 1, 1, 1, 1, 1},
			lastBatch: [][]int32{{0}, {1}, {2}, {0}, {1}, {2}, {0}, {1}},
		},
	} {
		s := mustNew(t, c.spec)
		if s.Steps() != c.steps || s.Delivered() != c.delivered {
			t.Errorf("%+v: %d steps, %d delivered; want %d, %d", s.Spec(), s.Steps(), s.Delivered(),
				c.steps, c.delivered)
		}
		var samples []int
		var last [][]int32
		for r := range c.spec.WorldSize {
			samples = append(samples, s.RankSamples(r))
			last = append(last, s.Epoch(0).Batch(nil, r, s.Steps()-1))
		}
		if diff := cmp.Diff(c.rankSamples, samples); diff != "" {
			t.Errorf("%+v: samples per rank (-want +got):\n%s", s.Spec(), diff)
		}
		if diff := cmp.Diff(c.lastBatch, last); diff != "" {
			t.Errorf("%+v: last batch (-want +got):\n%s", s.Spec(), diff)
		}
	}
	if spec := mustNew(t, Spec{
		Samples:     1,
		WorldSize:   1,
		GlobalBatch: 1,
	}).Spec(); spec.Shuffle != Torch || spec.Scheme != Strided || spec.Tail != Pad {
		t.Errorf("defaults: %+v", spec)
	}
}
