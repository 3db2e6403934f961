package pagecache

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func one(int) int64 { return 1 }

// hits reads all files in a new order in each epoch, and returns the share of hits in each.
func hits(c *Cache, files, epochs int, shuffle bool) []float64 {
	rng := rand.New(rand.NewPCG(1, 2))
	var of []float64
	order := make([]int32, files)
	for k := range order {
		order[k] = int32(k)
	}
	for range epochs {
		if shuffle {
			rng.Shuffle(files, func(i, j int) { order[i], order[j] = order[j], order[i] })
		}
		n := 0
		for _, k := range order {
			if c.Read(k) {
				n++
			}
		}
		of = append(of, float64(n)/float64(files))
	}
	return of
}

// TestLRUHasItsHits checks the share of hits of a plain LRU list under fresh permutations: with
// memory for a share x of the dataset, x + (1-x) ln(1-x).
func TestLRUHasItsHits(t *testing.T) {
	const files = 40_000
	for _, x := range []float64{0.25, 0.35, 0.5, 0.65} {
		got := hits(New(LRU, int64(x*files), files, one), files, 5, true)
		want := x + (1-x)*math.Log(1-x)
		for e, h := range got[1:] {
			if math.Abs(h-want) > 0.008 {
				t.Errorf("memory for %v: %.4f hits in epoch %d, want %.4f", x, h, e+1, want)
			}
		}
	}
}

// TestPapersHits checks the misses of CoorDL's server (table 6, figure 3): with memory for 65 % of
// 645 GB, 53 % of the reads in random order miss. MinIO misses 35 %.
func TestPapersHits(t *testing.T) {
	const files, bytes = 20_000, 645e9 / 20_000
	size := func(int) int64 { return bytes }
	got := hits(New(TwoLists, 0.65*645e9, files, size), files, 8, true)
	for e, h := range got[3:] {
		if math.Abs(1-h-0.53) > 0.01 {
			t.Errorf("epoch %d: %.3f misses, want 0.53", e+3, 1-h)
		}
	}
}

// TestSequentialReadsMiss checks that what is read in the same order in each epoch is evicted
// before it is read again, and that all stays if there is memory for all.
func TestSequentialReadsMiss(t *testing.T) {
	for _, rule := range []Rule{TwoLists, LRU} {
		if got := hits(New(rule, 900, 1000, one), 1000, 5, false); slices.Max(got) > 0 {
			t.Errorf("rule %d, memory for 90 %%: hits %v, want none", rule, got)
		}
		if got := hits(New(rule, 1000, 1000, one), 1000, 3, false); got[1] != 1 || got[2] != 1 {
			t.Errorf("rule %d, memory for all: hits %v, want all from epoch 1 on", rule, got)
		}
	}
}

// TestTwoListsStepByStep follows a cache of four files: the second read of a file that is still
// there protects it from what is read once.
func TestTwoListsStepByStep(t *testing.T) {
	c := New(TwoLists, 4, 10, one)
	for i, step := range []struct {
		read int32
		hit  bool
	}{
		// 0 becomes active, and 1 is evicted.
		{0, false},
		{1, false},
		{0, true},
		{2, false},
		{3, false},
		{4, false},
		// 1 comes back within the length of the active list, and is active; 2 and 3 are evicted.
		{0, true},
		{1, false},
		{5, false},
		{6, false},
		{0, true},
		{1, true},
		{2, false},
	} {
		if got := c.Read(step.read); got != step.hit {
			t.Errorf("step %d: file %d, hit %v, want %v", i, step.read, got, step.hit)
		}
	}
}

// TestCacheIsConsistent checks for any reads that no more is kept than fits, that lists are whole,
// and that a hit is a file that was read before.
func TestCacheIsConsistent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		files := rapid.IntRange(1, 30).Draw(t, "files")
		sizes := rapid.SliceOfN(rapid.Int64Range(1, 9), files, files).Draw(t, "sizes")
		capacity := rapid.Int64Range(0, 60).Draw(t, "capacity")
		rule := rapid.SampledFrom([]Rule{TwoLists, LRU}).Draw(t, "rule")
		c := New(rule, capacity, files, func(id int) int64 { return sizes[id] })
		read := make([]bool, files)
		for _, k := range rapid.SliceOfN(rapid.Int32Range(0, int32(files-1)), 0, 200).
			Draw(t, "reads") {
			if c.Read(k) && !read[k] {
				t.Fatalf("hit of file %d, which was never read", k)
			}
			read[k] = true
			kept := int64(0)
			for _, l := range []struct {
				list list
				in   where
			}{{c.inactive, inactiveList}, {c.active, activeList}} {
				sum, newer := int64(0), int32(none)
				for id := l.list.newest; id != none; newer, id = id, c.files[id].older {
					if c.files[id].in != l.in || c.files[id].newer != newer {
						t.Fatalf("list %d is broken at file %d", l.in, id)
					}
					sum += sizes[id]
				}
				if sum != l.list.bytes {
					t.Fatalf("list %d has %d bytes, counted %d", l.in, sum, l.list.bytes)
				}
				kept += sum
			}
			if kept > capacity {
				t.Fatalf("%d bytes are kept of %d", kept, capacity)
			}
		}
	})
}
