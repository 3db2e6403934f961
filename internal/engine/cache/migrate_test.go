package cache

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/store/memory"
)

// both returns a rig with segments of ten samples of 400 bytes: a class in memory for this many,
// and one on disk for that many.
func both(t *testing.T, samples, inMemory, onDisk int) (*rig, *memory.Class) {
	class := memory.New(memory.Options{Segment: 4096})
	return newRig(t, rigOptions{
		sizes:       slices.Repeat([]int{400}, samples),
		threads:     3,
		memory:      int64(400 * inMemory),
		memoryClass: class,
		file:        int64(400 * onDisk),
		dir:         t.TempDir(),
	}), class
}

// from returns the samples from first on, up to but without end.
func from(first, end int) (ids []int32) {
	for id := first; id < end; id++ {
		ids = append(ids, int32(id))
	}
	return ids
}

// follow replaces the plan of the rig's job as a planner does, and waits until the classes are
// full.
func (g *rig) follow(plan ...[]int32) {
	g.use.Keep(plan)
	g.use.Release()
	g.use.Fill(plan, func(int64) {})
	synctest.Wait()
	g.cache.Flush()
}

// holds checks what each class holds.
func (g *rig) holds(want ...[]int32) {
	g.t.Helper()
	for j, store := range g.stores {
		held := slices.Sorted(slices.Values(store.Held()))
		if ids := slices.Sorted(slices.Values(want[j])); !slices.Equal(held, ids) {
			g.t.Errorf("class %d holds %v, want %v", j+1, held, ids)
		}
	}
}

// TestNewPlanReplacesTheOldOne checks that after a new plan the classes hold what it assigns to
// them and nothing else, and that nothing was read again that moved between classes.
func TestNewPlanReplacesTheOldOne(t *testing.T) {
	for name, c := range map[string]struct {
		inMemory, onDisk int
		before, after    [][]int32
		reads            int64 // of the source for the new plan, at most
	}{
		"nothing changes": {
			20, 20,
			[][]int32{from(0, 20), from(20, 40)},
			[][]int32{from(0, 20), from(20, 40)},
			0,
		},
		"other samples": {
			20, 20,
			[][]int32{from(0, 20), from(20, 40)},
			[][]int32{from(40, 60), from(60, 80)},
			40,
		},
		"a part": {
			20, 20,
			[][]int32{from(0, 20), from(20, 40)},
			[][]int32{from(10, 30), from(30, 50)},
			20,
		},
		"to disk, with room": {
			20, 40,
			[][]int32{from(0, 20), from(20, 40)},
			[][]int32{nil, from(0, 40)},
			0,
		},
		"to memory, with room": {
			40, 20,
			[][]int32{from(0, 20), from(20, 40)},
			[][]int32{from(0, 40), nil},
			0,
		},
		"fewer": {
			20, 20,
			[][]int32{from(0, 20), from(20, 40)},
			[][]int32{from(5, 7), from(1, 3)},
			0,
		},
		"full classes exchange": {
			32, 32,
			[][]int32{from(0, 32), from(32, 64)},
			[][]int32{from(32, 64), from(0, 32)},
			4,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, _ := both(t, 80, c.inMemory, c.onDisk)
				defer g.close()
				g.follow(c.before...)
				g.holds(c.before...)
				before, _ := g.cache.SourceReads()
				g.follow(c.after...)
				g.holds(c.after...)
				if now, _ := g.cache.SourceReads(); now-before > c.reads {
					t.Errorf("%d samples were read from the source, want at most %d", now-before,
						c.reads)
				}
				for id := range 80 {
					if data, err := g.fetch(t.Context(), id); err != nil ||
						!bytes.Equal(data, content(id, 400)) {
						t.Errorf("sample %d: %v", id, err)
					}
				}
			})
		})
	}
}

// TestReleaseKeepsWhatOtherJobsWant checks that a class keeps what any job's plan assigns to it,
// and a class that keeps everything keeps it.
func TestReleaseKeepsWhatOtherJobsWant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := both(t, 60, 20, 20)
		defer g.close()
		other := g.cache.Use(nil)
		defer other.Close()
		other.Keep([][]int32{from(0, 10), from(20, 25)})
		g.follow(from(0, 20), from(20, 40))
		g.use.Keep([][]int32{from(40, 45), nil})
		g.use.Release()
		g.holds(from(0, 10), from(20, 25))
	})
	synctest.Test(t, func(t *testing.T) {
		o := plain(8)
		o.memory = 400
		o.file = 800
		o.dir = t.TempDir()
		o.keepAll = true
		g := newRig(t, o)
		defer g.close()
		g.follow(from(0, 4))
		g.follow(from(4, 8))
		g.holds(from(4, 8), from(0, 8))
	})
}

// TestReleaseWaitsForJobsWithoutAPlan checks that nothing is dropped while a job that has begun has
// no plan, in which it may count on what is held; but not for ever.
func TestReleaseWaitsForJobsWithoutAPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := both(t, 60, 20, 20)
		defer g.close()
		g.follow(from(0, 20), from(20, 40))
		g.use.Keep([][]int32{from(40, 60), nil})
		other := g.cache.Use(nil)
		done := make(chan struct{})
		go func() {
			defer close(done)
			g.use.Release()
		}()
		synctest.Wait()
		g.holds(from(0, 20), from(20, 40))
		other.Keep([][]int32{from(0, 5), nil})
		<-done
		g.holds(from(0, 5), nil)
		silent := g.cache.Use(nil)
		g.use.Keep([][]int32{nil, nil})
		other.Keep(nil)
		begun := time.Now()
		g.use.Release()
		if d := time.Since(begun); d != unsettled {
			t.Errorf("waited %v", d)
		}
		g.holds(nil, nil)
		silent.Close()
		other.Close()
	})
}

// TestReleaseWaitsForReadsByTheOldPlan checks that a read in progress does not leave a sample in a
// class that the new plan does not want there.
func TestReleaseWaitsForReadsByTheOldPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		o := plain(4)
		o.memory, o.hook = 400, func(_ context.Context, id int) error {
			if id == 2 {
				<-gate
			}
			return nil
		}
		g := newRig(t, o)
		defer g.close()
		var reads sync.WaitGroup
		reads.Go(func() {
			if data, err := g.fetch(t.Context(), 2); err != nil ||
				!bytes.Equal(data, content(2, 100)) {
				t.Error(err)
			}
		})
		synctest.Wait()
		g.use.Keep([][]int32{{0, 1}})
		reads.Go(g.use.Release)
		synctest.Wait()
		close(gate)
		reads.Wait()
		g.holds(nil)
	})
}

// TestReleaseEndsWithItsUse checks that Release returns when its job's use is closed, whatever it
// waits for, and that calls do not overlap.
func TestReleaseEndsWithItsUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := both(t, 60, 20, 20)
		defer g.close()
		defer g.cache.Watch(&watched{settle: func(settled, gone func()) {}})() // never
		g.follow(from(0, 20), nil)
		silent := g.cache.Use(nil)
		begun := time.Now()
		var releases sync.WaitGroup
		uses := []*Use{g.use, g.cache.Use(nil)}
		for _, u := range uses {
			u.Keep([][]int32{from(20, 30), nil})
			releases.Go(u.Release)
		}
		synctest.Wait()
		g.holds(from(0, 20), nil) // both wait for the silent job
		silent.Close()
		synctest.Wait() // one has dropped all, and waits for memory
		g.holds(nil, nil)
		for _, u := range uses {
			u.Close()
		}
		releases.Wait()
		if d := time.Since(begun); d > 0 {
			t.Errorf("waited %v", d)
		}
		g.use = g.cache.Use(nil) // the rig closes it
	})
}

// TestPlanDoesNotWaitForAHungDrop checks that a job gets a plan while a class hangs as samples are
// dropped from it for another job's plan.
func TestPlanDoesNotWaitForAHungDrop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, h := newHanging(t, plain(8))
		defer g.close()
		resume := h.hang()
		g.use.Keep([][]int32{nil})
		var releasing sync.WaitGroup
		releasing.Go(g.use.Release)
		synctest.Wait()
		if h.waiting.Load() != 1 {
			t.Fatal("the class does not hang")
		}
		begin, other := time.Now(), g.cache.Use(nil)
		defer other.Close()
		other.Keep([][]int32{{1}})
		if took := time.Since(begin); took > longDrop || g.cache.class(1) != 1 {
			t.Errorf("the plan was in force %v after %v", g.cache.class(1) == 1, took)
		}
		resume()
		releasing.Wait()
	})
}

// TestReleaseEndsAlthoughAClassHangs checks that Release returns when its job's use is closed while
// a class hangs, and that Close then reports what hangs.
func TestReleaseEndsAlthoughAClassHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, h := newHanging(t, plain(8))
		resume := h.hang()
		g.use.Keep([][]int32{nil})
		var releasing sync.WaitGroup
		releasing.Go(g.use.Release)
		synctest.Wait()
		begin := time.Now()
		g.use.Close()
		releasing.Wait()
		if took := time.Since(begin); took > time.Second {
			t.Errorf("Release returned after %v", took)
		}
		if hung := g.cache.Close(); !hung.Moves || hung.Source {
			t.Errorf("%+v hangs, want what was moved", hung)
		}
		resume()
		synctest.Wait()
		g.opened.Close(t)
	})
}

// TestReleaseTellsWatchersOfMemoryOnly checks that watchers are notified of the segments that are
// given back, but of no samples: memory is not short, and other nodes need no notification.
func TestReleaseTellsWatchersOfMemoryOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, class := both(t, 60, 40, 10)
		defer g.close()
		w := &watched{}
		defer g.cache.Watch(w)()
		g.follow(from(0, 40), nil)
		g.follow(from(30, 60), nil)
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.segments == 0 || len(w.samples) > 0 {
			t.Errorf("told of %d segments and samples %v", w.segments, w.samples)
		}
		r := g.stores[0].(store.Shrinker).Returned()
		if r.Released == 0 || r.Bytes > 0 || r.Now > 0 || r.Used > 0 {
			t.Errorf("returned %+v", r)
		}
		if used := class.Taken(); used > 40*400+2*4096 {
			t.Errorf("the class has taken %d bytes", used)
		}
	})
}
