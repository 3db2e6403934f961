package cache

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// TestOldestJobDecidesWhereSamplesAreKept checks that if jobs that share a cache assign a sample to
// different classes, the oldest open job decides, and that a sample that no open job assigns to a
// class is not kept.
func TestOldestJobDecidesWhereSamplesAreKept(t *testing.T) {
	o := plain(6)
	o.memory = 200
	o.file = 200
	o.dir = t.TempDir()
	g := newRig(t, o)
	defer g.close()
	first, second := g.use, g.cache.Use(nil)
	check := func(when string, want ...int) {
		t.Helper()
		for id, class := range want {
			if got := g.cache.class(id); got != class {
				t.Errorf("%s: sample %d is planned for class %d, want %d", when, id, got, class)
			}
		}
	}
	first.Keep([][]int32{{0, 1}, {2}})
	second.Keep([][]int32{{2, 3}, {0, 4}})
	check("both jobs", 1, 1, 2, 1, 2, 0)
	first.Keep([][]int32{{5}})
	check("the first job changed its plan", 2, 0, 1, 1, 2, 1)
	first.Keep([][]int32{{0, 1}, {2}})
	check("the first job changed back", 1, 1, 2, 1, 2, 0)
	first.Close()
	check("the second job alone", 2, 0, 1, 1, 2, 0)
	second.Close()
	check("no job", 0, 0, 0, 0, 0, 0)
	if g.cache.planned.Load() != nil {
		t.Error("there is a plan without a job")
	}
	g.use = g.cache.Use(nil) // the rig closes it
}

// TestKeepAllKeepsEverythingRead checks that a class that keeps everything also gets a copy of what
// is read into another class, but nothing if no job's plan keeps anything.
func TestKeepAllKeepsEverythingRead(t *testing.T) {
	for name, planned := range map[string]bool{"with a plan": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			o := plain(4)
			o.memory = 200
			o.file = 400
			o.dir = t.TempDir()
			o.keepAll = true
			g := newRig(t, o)
			defer g.close()
			want := []int32{0, 1, 2, 3}
			if g.use.Keep([][]int32{{0, 1}}); !planned {
				g.use.Keep(nil)
				want = nil
			}
			for id := range 4 {
				if _, err := g.fetch(t.Context(), id); err != nil {
					t.Fatal(err)
				}
			}
			g.cache.Flush()
			if held := slices.Sorted(slices.Values(g.stores[1].Held())); !slices.Equal(held, want) {
				t.Errorf("the class keeps %v, want %v", held, want)
			}
		})
	}
}

// TestFillReportsOnlySourceReads checks that Fill does not report samples that another class held
// or that a batch has read.
func TestFillReportsOnlySourceReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := plain(4)
		o.memory = 400
		g := newRig(t, o)
		defer g.close()
		if _, _, err := g.fetched(t, &Request{}, 2); err != nil {
			t.Fatal(err)
		}
		var read atomic.Int64
		g.use.Fill([][]int32{{0, 1, 2, 3}}, func(bytes int64) { read.Add(bytes) })
		synctest.Wait()
		if held := len(g.stores[0].Held()); held != 4 || read.Load() != 300 {
			t.Errorf("%d samples are held, and %d bytes were read from the source for 3 of them",
				held, read.Load())
		}
	})
}

// TestFillSkipsSamplesThatDoNotFit checks that Fill never reads a sample for which its class has no
// capacity.
func TestFillSkipsSamplesThatDoNotFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := plain(8)
		o.memory, o.planAll = 300, true
		g := newRig(t, o)
		defer g.close()
		for range 2 {
			g.use.Fill(g.opened.Plan, func(int64) {})
			synctest.Wait()
			if samples, _ := g.cache.SourceReads(); int(samples) != len(g.stores[0].Held()) ||
				samples == 0 || samples == 8 {
				t.Errorf("%d samples were read, and %d are held", samples, len(g.stores[0].Held()))
			}
		}
	})
}

// TestFillSkipsHeldSamples checks that Fill does not read copies that are where they are to be.
func TestFillSkipsHeldSamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := plain(4)
		o.file, o.dir = 400, t.TempDir()
		g := newRig(t, o)
		defer g.close()
		for range 2 {
			g.use.Fill(g.opened.Plan, func(int64) {})
			synctest.Wait()
		}
		if file := g.cache.Speeds()[FirstClass]; file.Samples != 0 || len(g.stores[0].Held()) != 4 {
			t.Errorf("%d samples are held, and %d copies were read", len(g.stores[0].Held()),
				file.Samples)
		}
	})
}
