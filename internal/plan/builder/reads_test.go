package builder

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/plan/policytest"
)

// TestReadsMatchAReplayOfTheStream builds the table for several ranges of samples.
func TestReadsMatchAReplayOfTheStream(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := policytest.DrawInput(t)
		b, err := New(&in)
		if err != nil {
			t.Fatal(err)
		}
		r := NewReads(b)
		if !r.whole {
			r.span = rapid.IntRange(1, len(b.head)).Draw(t, "range")
		}
		type reads struct{ count, first int32 }
		want := make([]map[int32]reads, len(b.head))
		for k := range want {
			want[k] = map[int32]reads{}
		}
		for e := in.From; e < b.to; e++ {
			for rank, k := range in.Stream.Epoch(e).Reads() {
				n := b.nodeOf[rank]
				by, seen := want[k][n]
				if !seen {
					by.first = int32(e - in.From)
				}
				by.count++
				want[k][n] = by
			}
		}
		next := int32(0)
		check := func(k int32, row *row) {
			total := 0
			for i, by := range row.by {
				w := want[k][by.node]
				if r.whole {
					w.first = 0
				}
				if (reads{int32(row.count[by.node]), by.first}) != w ||
					!r.whole && i > 0 && len(r.repeats) == 0 && by.first < row.by[i-1].first {
					t.Fatalf("sample %d: %+v, want %+v", k, row.by, want[k])
				}
				total += int(w.count)
			}
			if row.total != total || !r.whole && len(row.by) != len(want[k]) {
				t.Fatalf("sample %d: %d reads by %+v, want %+v", k, row.total, row.by, want[k])
			}
		}
		r.each(func(k int32) bool { return k%3 != 0 }, func(k int32, row *row) {
			if next++; k%3 == 0 || k < next {
				t.Fatalf("sample %d is not worth it, or comes again", k)
			}
			next = k
			check(k, row)
		})
		seen := make([]bool, len(b.head))
		r.eachAtOnce(func(k int32, row *row) {
			if seen[k] {
				t.Errorf("sample %d comes again", k)
			}
			seen[k] = true
			check(k, row)
		})
		if slices.Contains(seen, false) {
			t.Fatalf("some samples never come: %v", seen)
		}
	})
}

func TestSortKeysSorts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, seed := rapid.IntRange(0, 3000).Draw(t, "keys"), rapid.IntRange(0, 1000).Draw(t, "seed")
		mask := rapid.Uint32().Draw(t, "mask")
		keys := make([]uint64, n)
		for i := range keys {
			keys[i] = uint64(uint32(access.Mix(seed, i))&mask)<<32 | uint64(i)
		}
		want := slices.Sorted(slices.Values(keys))
		if sortKeys(keys); !slices.Equal(keys, want) {
			t.Fatalf("%x, want %x", keys, want)
		}
	})
}

// TestMemoryIsThatOfTheTableAndTheSamples: the memory of a plan is that of the table of reads, and
// a fixed number of bytes per sample.
func TestMemoryIsThatOfTheTableAndTheSamples(t *testing.T) {
	const samples, perSample = 500, 88
	for _, c := range []struct{ nodes, epochs, horizon, from int }{
		{1, 4, 0, 0},
		{2, 90, 0, 0},
		{4, 90, 0, 70},
		{9, 0, 30, 0},
		{200, 12, 0, 3},
	} {
		in := plan.Input{
			Stream: policytest.Stream(t,
				access.Spec{
					Samples:     samples,
					Epochs:      c.epochs,
					WorldSize:   c.nodes,
					GlobalBatch: c.nodes,
				}),
			Nodes: policytest.Nodes(c.nodes, 3), Size: func(int) int64 {
				return 1
			}, Epochs: c.horizon, From: c.from,
		}
		b, err := New(&in)
		if err != nil {
			t.Fatal(err)
		}
		r := NewReads(b)
		r.load(0)
		if got, want := Memory(in), int64(8*len(r.table)+samples*perSample); got != want {
			t.Errorf("%+v: %d bytes, want %d", c, got, want)
		}
	}
}
