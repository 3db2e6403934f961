package cache

import (
	"bytes"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/hdmlp/hdmlp/internal/storageclass"
	"github.com/hdmlp/hdmlp/internal/storageclass/memory"
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

// TestNewPlanReplacesTheOldOne checks that after a new plan the classes hold what it wants and
// nothing else, and that nothing was read again that moved between classes.
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

// TestReleaseKeepsWhatOtherJobsWant checks that a class keeps what any job's plan wants there, and
// a class that keeps everything keeps it.
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
		o.memory, o.file, o.dir, o.keepAll = 400, 800, t.TempDir(), true
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

// TestReleaseTellsWatchersOfMemoryOnly checks that who watches is told of the segments that go, but
// of no samples: memory is not short, and other nodes need not be told.
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
		r := g.stores[0].(storageclass.InPlace).Returned()
		if r.Released == 0 || r.Bytes > 0 || r.Now > 0 || r.Used > 0 {
			t.Errorf("returned %+v", r)
		}
		if used := class.Taken(); used > 40*400+2*4096 {
			t.Errorf("the class has taken %d bytes", used)
		}
	})
}

// TestAnyPlansWhileBatchesFlow replaces random plans while samples are fetched, viewed, located and
// served, and processes let go of memory at once, late or too late. All samples have the right
// bytes, the classes keep within their room, and in the end they hold what the last plan wants.
func TestAnyPlansWhileBatchesFlow(t *testing.T) {
	const samples = 60
	rapid.Check(t, func(r *rapid.T) {
		sizes := rapid.SliceOfN(rapid.IntRange(0, 900), samples, samples).Draw(r, "sizes")
		room := [2]int{
			rapid.IntRange(4000, 20_000).Draw(r, "memory"),
			rapid.IntRange(4000, 20_000).Draw(r, "file"),
		}
		plans := rapid.IntRange(1, 4).Draw(r, "plans")
		seed := rapid.Uint64().Draw(r, "seed")
		slow := rapid.SampledFrom([]time.Duration{
			0, time.Millisecond, time.Second, time.Minute,
		}).Draw(r, "processes let go after")
		synctest.Test(t, func(t *testing.T) {
			class := memory.New(memory.Options{Segment: 4096})
			g := newRig(t, rigOptions{
				sizes: sizes, threads: 3, memory: int64(room[0]), memoryClass: class,
				file: int64(room[1]), dir: t.TempDir(),
			})
			defer g.close()
			leave := g.cache.Watch(&watched{settle: func(settled, gone func()) {
				time.AfterFunc(slow/2, settled)
				time.AfterFunc(slow, gone)
			}})
			defer leave()
			stop := g.flow(t, seed, min(slow, 50*time.Millisecond))
			rnd := rand.New(rand.NewPCG(seed, 0))
			var plan [][]int32
			for range plans {
				plan = randomPlan(rnd, sizes, room)
				g.use.Keep(plan)
				g.use.Release()
				g.use.Fill(plan, func(int64) {})
				g.keepsWithin()
			}
			stop()
			time.Sleep(2 * slow)
			class.Allow(1 << 40) // what waited for memory that was in use is brought now
			synctest.Wait()
			g.cache.Flush()
			g.holds(plan...)
			g.keepsWithin()
		})
		if t.Failed() {
			r.Fatal("see above")
		}
	})
}

// keepsWithin checks that the classes have taken no more than their room. A segment is 4096 bytes,
// and up to a sample of it may be left free.
func (g *rig) keepsWithin() {
	g.t.Helper()
	for j, store := range g.stores {
		total, used := store.Capacity()
		if used > total {
			g.t.Errorf("class %d has %d of %d bytes in use", j+1, used, total)
		}
		if p, ok := store.(storageclass.InPlace); ok {
			if lent := p.Returned().Used; used+lent-lent/4 > total+4096 {
				g.t.Errorf("%d of %d bytes are in use, and %d lent", used, total, lent)
			}
		}
	}
}

// randomPlan returns a plan of which as much as possible fits.
func randomPlan(rnd *rand.Rand, sizes []int, room [2]int) [][]int32 {
	plan, left := make([][]int32, 2), room
	for _, id := range rnd.Perm(len(sizes)) {
		if j := rnd.IntN(3); j < 2 && sizes[id] <= left[j] {
			left[j] -= sizes[id]
			plan[j] = append(plan[j], int32(id))
		}
	}
	return plan
}

// flow fetches samples in several ways, with pauses, until stop is called.
func (g *rig) flow(t *testing.T, seed uint64, pause time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var users sync.WaitGroup
	right := func(how string, id int, data []byte, err error) {
		if size := g.source.Index.Size(id); err != nil || !bytes.Equal(data, content(id, size)) {
			t.Errorf("%s sample %d: %d bytes, %v", how, id, len(data), err)
		}
	}
	for n := range uint64(3) {
		users.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, n+1))
			for ctx.Err() == nil {
				id := rnd.IntN(g.source.Index.Len())
				switch rnd.IntN(4) {
				case 0:
					data, err := g.fetch(context.Background(), id)
					right("fetched", id, data, err)
				case 1:
					got := g.serve(context.Background(), id)
					right("served", id, got.data, got.err)
				case 2:
					if data, _, hold, ok := g.cache.Held(id); ok {
						right("viewed", id, data, nil)
						hold.Release()
					}
				case 3:
					if at, ok := g.cache.Locate(id); ok {
						g.cache.Segment(at.Segment)
					}
				}
				if pause > 0 { // virtual time passes only if all pause
					time.Sleep(time.Duration(rnd.Int64N(int64(pause))))
				}
			}
		})
	}
	return func() {
		cancel()
		users.Wait()
	}
}
