package prefetch

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/dataset"
	"github.com/hdmlp/hdmlp/internal/storageclass/memory"
)

// TestReadOnce: however many ask at the same time, the source is read once, and
// everybody gets the bytes, with and without a class to put them in.
func TestReadOnce(t *testing.T) {
	for _, room := range []int64{0, 400} {
		synctest.Test(t, func(t *testing.T) {
			gate := make(chan struct{})
			o := plain(4, 1)
			o.memory = room
			o.hook = func(context.Context, int) error { <-gate; return nil }
			g := newRig(t, o)
			defer g.close()
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					if room > 0 {
						if _, _, err := g.cache.fetchInPlace(t.Context(), &worker{}, 3); err != nil {
							t.Error(err)
						}
						return
					}
					dst := make([]byte, 100)
					if _, err := g.cache.fetchInto(t.Context(), &worker{}, 3, dst); err != nil {
						t.Error(err)
					} else if !bytes.Equal(dst, content(3, 100)) {
						t.Error("wrong bytes")
					}
				})
			}
			synctest.Wait() // one reads, seven wait for it
			close(gate)
			all.Wait()
			if n := g.source.reads[3].Load(); n != 1 {
				t.Errorf("room %d: the source was read %d times", room, n)
			}
		})
	}
}

// TestCancelledLeader: whoever waits for a read that its leader gives up, because
// its job ended, reads by itself. The source says then that it did not answer, as
// a patient one does when it is told to stop trying.
func TestCancelledLeader(t *testing.T) {
	for _, room := range []int64{0, 400} {
		synctest.Test(t, func(t *testing.T) {
			first := true
			o := plain(4, 1)
			o.memory = room
			o.hook = func(ctx context.Context, id int) error {
				if !first {
					return nil
				}
				first = false
				<-ctx.Done()
				return &dataset.SampleError{ID: id, Path: "p", Kind: dataset.ErrUnavailable}
			}
			g := newRig(t, o)
			defer g.close()
			fetch := func(ctx context.Context) error {
				if room > 0 {
					_, _, err := g.cache.fetchInPlace(ctx, &worker{}, 1)
					return err
				}
				_, err := g.cache.fetchInto(ctx, &worker{}, 1, make([]byte, 100))
				return err
			}
			ctx, cancel := context.WithCancel(t.Context())
			results := make(chan error, 2)
			go func() { results <- fetch(ctx) }()
			synctest.Wait()
			go func() { results <- fetch(t.Context()) }()
			synctest.Wait()
			cancel()
			a, b := <-results, <-results
			if (a == nil) == (b == nil) {
				t.Errorf("room %d: the leader got %v and the follower %v; want an error for the leader alone", room, a, b)
			}
			if n := g.source.reads[1].Load(); n != 2 {
				t.Errorf("room %d: the source was read %d times, want 2", room, n)
			}
		})
	}
}

// TestCorruptCopy: a copy on disk that has gone bad is read from the source again.
func TestCorruptCopy(t *testing.T) {
	o := plain(4, 2)
	o.file, o.dir = 400, t.TempDir()
	g := newRig(t, o)
	defer g.close()
	if _, err := g.run(g.ranks[0], step{0, 0}, 2, 0); err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob(filepath.Join(o.dir, "*", "data"))
	if err != nil || len(found) != 1 {
		t.Fatalf("data files %v, %v", found, err)
	}
	if err := os.WriteFile(found[0], bytes.Repeat([]byte{7}, 400), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := g.run(g.ranks[0], step{1, 0}, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	for at, got := range out {
		if !equal(got, g.want(0, at)) {
			t.Errorf("%+v: wrong content", at)
		}
	}
	if samples, _ := g.cache.SourceReads(); samples != 8 {
		t.Errorf("%d samples were read from the source, want every one twice", samples)
	}
	if held := len(g.stores[0].Held()); held != 4 {
		t.Errorf("%d samples are held, want all 4 again", held)
	}
}

// TestDemotion: a class that has less room than its plan is no fault: what does
// not fit is read from the source whenever it is needed.
func TestDemotion(t *testing.T) {
	o := plain(8, 3)
	o.memory, o.planAll, o.fill = 300, true, true
	g := newRig(t, o)
	defer g.close()
	out, err := g.run(g.ranks[0], step{0, 0}, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	for at, got := range out {
		if !equal(got, g.want(0, at)) {
			t.Errorf("%+v: got %v", at, ids(got))
		}
	}
	held := g.stores[0].Held()
	if len(held) == 0 || len(held) == 8 {
		t.Fatalf("%d samples are held, want some", len(held))
	}
	for id := range 8 {
		if slices.Contains(held, int32(id)) == g.cache.demoted.has(id) {
			t.Errorf("sample %d: held %v, demoted %v", id, slices.Contains(held, int32(id)), g.cache.demoted.has(id))
		}
	}
}

// TestPlanChanges: another plan, at whatever time, changes where samples lie, and nothing else. Each epoch is begun with
// one and ends with another; within it they change at every read.
func TestPlanChanges(t *testing.T) {
	o := plain(64, 6)
	o.memory, o.file, o.dir, o.fill = 1600, 1600, t.TempDir(), true
	var all [][][]int32
	for n := range 4 { // the classes change places, and lose all that they had
		var plan [][]int32
		for class := range 2 {
			var ids []int32
			for id := range 16 {
				ids = append(ids, int32((id+16*(class+n))%64))
			}
			plan = append(plan, ids)
		}
		all = append(all, plan, nil)
	}
	var g *rig
	var reads atomic.Int64
	planned := make(chan struct{})
	o.hook = func(context.Context, int) error {
		<-planned
		g.use.Keep(all[int(reads.Add(1))%len(all)])
		return nil
	}
	g = newRig(t, o)
	close(planned)
	defer g.close()
	out, err := g.run(g.ranks[0], step{0, 0}, 0, 0)
	if err != nil || len(out) != 6*32 {
		t.Fatalf("%d batches: %v", len(out), err)
	}
	for at, got := range out {
		if !equal(got, g.want(0, at)) {
			t.Errorf("%+v: got %v", at, ids(got))
		}
	}
	if len(g.stores[0].Held()) == 0 || len(g.stores[1].Held()) == 0 {
		t.Error("nothing was kept")
	}
}

// TestSharedStore: two caches over one store, because one dataset was opened under
// two names: what the other one is filling is read into the staging buffer.
func TestSharedStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		o := plain(4, 1)
		o.memory, o.memoryClass = 400, memory.New(memory.Options{})
		other := o
		other.hook = func(context.Context, int) error { <-gate; return nil }
		a, b := newRig(t, other), newRig(t, o)
		stuck := make(chan error)
		go func() {
			_, _, err := a.cache.fetchInPlace(context.Background(), &worker{}, 2)
			stuck <- err
		}()
		synctest.Wait()
		out, err := b.run(b.ranks[0], step{0, 0}, 0, 0)
		if err != nil || !slices.Equal(stream(out), []int{0, 1, 2, 3}) {
			t.Errorf("got %v, %v", stream(out), err)
		}
		close(gate)
		if err := <-stuck; err != nil {
			t.Error(err)
		}
		b.close()
		a.close()
	})
}

// TestPoolOrder: workers bring what the job needs first, whoever asked first.
func TestPoolOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		var order []int
		o := plain(8, 2)
		o.threads = 1
		o.hook = func(_ context.Context, id int) error {
			order = append(order, id)
			if id == 7 {
				<-gate
			}
			return nil
		}
		g := newRig(t, o)
		defer g.close()
		s := g.ranks[0].stager
		var batches []*batch
		for n, at := range []step{{0, 3}, {1, 1}, {0, 2}, {0, 0}, {0, 1}} {
			b, tasks, err := s.prepare(t.Context(), g.stream.Epoch(at.epoch), at.step)
			if err != nil {
				t.Fatal(err)
			}
			batches = append(batches, b)
			if n == 0 {
				tasks[0], tasks[1] = tasks[1], tasks[0] // 7 first, which blocks
				tasks = tasks[:1]
				b.arrived()
			}
			g.cache.pool.submit(tasks)
			synctest.Wait()
		}
		close(gate)
		for _, b := range batches {
			<-b.done
			s.discard(b)
		}
		s.reap.Wait()
		if want := []int{7, 0, 1, 2, 3, 4, 5, 2, 3}; !slices.Equal(order, want) {
			t.Errorf("read in the order %v, want %v", order, want)
		}
	})
}

// TestFillQuarter: filling never takes all workers.
func TestFillQuarter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		under := make(chan int, 100)
		o := plain(40, 1)
		o.threads, o.memory, o.fill = 4, 2000, true // samples 20 to 39 have no class
		o.hook = func(_ context.Context, id int) error {
			under <- id
			<-gate
			return nil
		}
		g := newRig(t, o)
		synctest.Wait()
		if n := len(under); n != 3 {
			t.Fatalf("%d of 4 workers fill, want 3", n)
		}
		_, err := g.cache.fetchDirect(t, 30, func() { close(gate) })
		if err != nil {
			t.Error(err)
		}
		g.close()
	})
}

// fetchDirect has a worker bring a sample while all others are blocked, and then
// calls release.
func (c *Cache) fetchDirect(t *testing.T, id int, release func()) (outcome, error) {
	type result struct {
		out outcome
		err error
	}
	got := make(chan result, 1)
	started := make(chan struct{})
	dst := make([]byte, c.index.Size(id))
	c.pool.addFill(nil, nil) // an empty fill is forgotten
	s := &Stager{o: StagerOptions{Cache: c}, faults: NewFaults(Raise)}
	b := &batch{stager: s, ctx: t.Context(), done: make(chan struct{}), room: [][]byte{dst}, reads: make([]read, 1)}
	b.Labels, b.Offsets, b.Lengths, b.IDs, b.Segments = make([]int64, 1), make([]uint64, 1), make([]uint64, 1), []uint32{uint32(id)}, make([]uint32, 1)
	s.o.Ledger = NewLedger(c, nil)
	b.left.Store(1)
	c.pool.submit([]task{{batch: b}})
	go func() {
		close(started)
		<-b.done
		got <- result{outcome{place: b.reads[0].place}, b.err}
	}()
	<-started
	synctest.Wait()
	if _, ok := c.flight[id%len(c.flight)].byID[int32(id)]; !ok {
		t.Errorf("no worker is left for sample %d", id)
	}
	release()
	r := <-got
	return r.out, r.err
}

// TestSpeedsAndPlaces: what was read from where is counted and named.
func TestSpeedsAndPlaces(t *testing.T) {
	o := plain(4, 2)
	o.memory, o.file, o.dir = 200, 200, t.TempDir()
	g := newRig(t, o)
	defer g.close()
	if _, err := g.run(g.ranks[0], step{0, 0}, 2, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := g.run(g.ranks[0], step{1, 0}, 0, 0); err != nil {
		t.Fatal(err)
	}
	speeds := g.cache.Speeds()
	if speeds[Source].Place != "source" || speeds[Source].Samples != 4 || speeds[Source].Bytes != 400 {
		t.Errorf("source: %+v, want every sample once", speeds[Source])
	}
	if f := speeds[FirstClass+1]; f.Place != "file" || f.Samples < 2 {
		t.Errorf("file: %+v, want its 2 samples in the second epoch", f)
	}
	reads := g.ranks[0].ledger.Epochs()[1].Reads
	if reads["memory"].Samples != 2 || reads["file"].Samples != 2 || reads["source"].Samples != 0 {
		t.Errorf("the second epoch read %+v", reads)
	}
}

// TestBusy: a place is busy while any read of it is under way; its seconds are those of all reads.
func TestBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m meter
		first := m.begin()
		<-time.After(2 * time.Second)
		second := m.begin()
		<-time.After(2 * time.Second)
		m.end(first, 10, nil)
		if s := m.speed(); s.Busy != 4 || s.Seconds != 4 {
			t.Errorf("with a read under way: %+v", s)
		}
		<-time.After(time.Second)
		m.end(second, 10, nil)
		<-time.After(time.Hour)
		if s := m.speed(); s.Busy != 5 || s.Seconds != 7 || s.Samples != 2 || s.Bytes != 20 {
			t.Errorf("after two reads: %+v, want 5 s busy and 7 s in all", s)
		}
	})
}
