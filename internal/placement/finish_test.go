package placement

import (
	"cmp"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/hdmlp/hdmlp/internal/access"
)

// firstNeeds returns, per sample, when the ranks together first need it before epoch `to`, counted in reads from the horizon's
// start; math.MaxInt where they never do.
func firstNeeds(in Input, ranks []int, to int) []int {
	first := make([]int, in.Stream.Spec().Samples)
	for k := range first {
		first[k] = math.MaxInt
	}
	n := 0
	for e := in.From; e < to; e++ {
		for r, k := range in.Stream.Epoch(e).Reads() {
			if n++; len(ranks) == 0 || slices.Contains(ranks, r) {
				first[k] = min(first[k], n)
			}
		}
	}
	return first
}

// checkOrder compares the order in which classes are filled with its definition, sorted.
func checkOrder(t interface{ Fatalf(string, ...any) }, in Input, p *Plan, shared bool) {
	to, _, err := in.check()
	if err != nil {
		t.Fatalf("%v", err)
	}
	if p.Policy == "cooperative" && len(in.Nodes) == 1 && !isGiven(in.Stream) {
		to = in.From + 1 // it looks no further
	}
	anyone := firstNeeds(in, nil, to)
	for n, node := range p.Nodes {
		own := firstNeeds(in, in.Nodes[n].Ranks, to)
		for j, got := range node.Classes {
			var has []int32
			if j < len(in.Nodes[n].Held) {
				has = in.Nodes[n].Held[j]
			}
			need := func(k int32) int {
				switch {
				case slices.Contains(has, k):
					return slices.Index(has, k) - len(has)
				case shared && p.OwnerOf(int(k)) == n:
					return anyone[k]
				}
				return own[k]
			}
			want := slices.Clone(got)
			slices.SortFunc(want, func(x, y int32) int { return cmp.Or(cmp.Compare(need(x), need(y)), cmp.Compare(x, y)) })
			if !slices.Equal(got, want) {
				t.Fatalf("%s: class %d of node %d is filled in the order %v, want %v", p.Policy, j+1, n, got, want)
			}
		}
	}
}

// TestOrder: what is held first, then by first need, then what is never needed, by ID.
func TestOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		checkOrder(t, in, plan(t, Cooperative{}, in), true)
		checkOrder(t, in, plan(t, Frequency{}, in), false)
		checkOrder(t, in, plan(t, MinIO{}, in), false)
	})
	for seed := range uint64(50) {
		in := simulatorInput(t, seed, 3)
		checkOrder(t, in, plan(t, LBANN{}, in), true)
		checkOrder(t, in, plan(t, Partitioned{}, in), false)
	}
}

// TestReads compares the table, made for several ranges of samples, with a replay.
func TestReads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		b, err := newBuilder(&in)
		if err != nil {
			t.Fatal(err)
		}
		r := newReads(b)
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
				if (reads{int32(row.count[by.node]), by.first}) != w || !r.whole && i > 0 && len(r.repeats) == 0 && by.first < row.by[i-1].first {
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

func TestSortKeys(t *testing.T) {
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
