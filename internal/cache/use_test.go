package prefetch

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// TestFirstJobDecidesWhereSamplesLie: where jobs that share a cache want a sample in different classes, the job that came first of those
// that are still open decides; a sample that no job wants any more is not kept.
func TestFirstJobDecidesWhereSamplesLie(t *testing.T) {
	o := plain(6, 1)
	o.memory, o.file, o.dir = 200, 200, t.TempDir()
	g := newRig(t, o)
	defer g.close()
	first, second := g.use, g.cache.Use(nil)
	check := func(when string, want ...int) {
		t.Helper()
		for id, class := range want {
			if got := g.cache.class(id); got != class {
				t.Errorf("%s: sample %d is to lie in class %d, want %d", when, id, got, class)
			}
		}
	}
	first.Keep([][]int32{{0, 1}, {2}})
	second.Keep([][]int32{{2, 3}, {0, 4}})
	check("both", 1, 1, 2, 1, 2, 0)
	first.Keep([][]int32{{5}})
	check("the first wants others now", 2, 0, 1, 1, 2, 1)
	first.Keep([][]int32{{0, 1}, {2}})
	check("it is the first still", 1, 1, 2, 1, 2, 0)
	first.Close()
	check("the second alone", 2, 0, 1, 1, 2, 0)
	second.Close()
	check("none", 0, 0, 0, 0, 0, 0)
	if g.cache.planned.Load() != nil {
		t.Error("without a job something is to be kept")
	}
	g.use = g.cache.Use(nil) // which the rig closes
}

// TestFillsTakeTurns: where several jobs have samples to be read ahead, the workers alternate between them.
func TestFillsTakeTurns(t *testing.T) {
	p := &pool{threads: 1, maxFilling: 1}
	p.changed = sync.NewCond(&p.mu)
	var order []int
	run := func(_ *worker, id int) { order = append(order, id) }
	p.addFill([]int32{1, 2, 3}, run)
	p.addFill([]int32{11, 12, 13}, run)
	p.mu.Lock()
	defer p.mu.Unlock()
	for range 4 {
		p.fillOne(&worker{})
	}
	if slices.Sort(order); !slices.Equal(order, []int{1, 2, 11, 12}) {
		t.Errorf("of four reads these were the samples: %v", order)
	}
}

// TestKeepAllKeepsWhatIsRead: a class that keeps everything gets a copy of what is read into another class too, and of nothing if no
// job's plan keeps anything.
func TestKeepAllKeepsWhatIsRead(t *testing.T) {
	for name, planned := range map[string]bool{"with a plan": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			o := plain(4, 1)
			o.memory, o.file, o.dir, o.keepAll = 200, 400, t.TempDir(), true
			g := newRig(t, o)
			defer g.close()
			want := []int32{0, 1, 2, 3}
			if g.use.Keep([][]int32{{0, 1}}); !planned {
				g.use.Keep(nil)
				want = nil
			}
			if _, err := g.run(g.ranks[0], step{}, 0, 0); err != nil {
				t.Fatal(err)
			}
			if held := slices.Sorted(slices.Values(g.stores[1].Held())); !slices.Equal(held, want) {
				t.Errorf("it keeps %v, want %v", held, want)
			}
		})
	}
}

// TestFillReportsWhatItReadFromTheSource: and nothing that lay in another class, or that a batch has read.
func TestFillReportsWhatItReadFromTheSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := plain(4, 1)
		o.memory = 400
		g := newRig(t, o)
		defer g.close()
		if _, _, err := g.fetched(t, &worker{}, 2); err != nil {
			t.Fatal(err)
		}
		var read atomic.Int64
		g.use.Fill([][]int32{{0, 1, 2, 3}}, func(bytes int64) { read.Add(bytes) })
		synctest.Wait()
		if held := len(g.stores[0].Held()); held != 4 || read.Load() != 300 {
			t.Errorf("%d samples are held, and %d bytes were read from the source for 3 of them", held, read.Load())
		}
	})
}
