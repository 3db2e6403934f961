package cache

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/model/routing"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/store/memory"
)

// watched is a store.Watcher that settles at once.
type watched struct {
	mu       sync.Mutex // guards the following
	samples  []int32
	segments int
	refills  int
	settle   func(settled, gone func())
}

func (w *watched) Vacate(_ int, _ uint32, samples []int32, settled, gone func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.samples = append(w.samples, samples...)
	w.segments++
	if w.settle != nil {
		w.settle(settled, gone)
		return
	}
	settled()
	gone()
}

func (w *watched) Refill() { w.mu.Lock(); defer w.mu.Unlock(); w.refills++ }

func (w *watched) Delay() time.Duration { return 3 * time.Second }

// scarce returns a rig whose class has segments of 40 samples, all of which are held.
func scarce(t *testing.T, samples int) (*rig, *memory.Class, store.Shrinker) {
	o := plain(samples)
	o.memory = int64(100 * samples)
	o.memoryClass = memory.New(memory.Options{Segment: 4096})
	g := newRig(t, o)
	for id := range samples {
		if _, err := g.fetch(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	return g, o.memoryClass, g.stores[0].(store.Shrinker)
}

// TestFetchedSamplesKeepTheirSegment checks that a sample that was fetched stays as it is, although
// its segment is given back, until it is released.
func TestFetchedSamplesKeepTheirSegment(t *testing.T) {
	g, class, store := scarce(t, 80)
	defer g.close()
	s, err := g.cache.Fetch(t.Context(), &Request{}, 3, nil)
	if err != nil || !s.InPlace {
		t.Fatalf("in place: %v, %v", s.InPlace, err)
	}
	held, ok := g.cache.Held(41, routing.Want{})
	if !ok {
		t.Fatal("sample 41 is not held")
	}
	taken := class.Taken()
	if begun := class.GiveBack(1<<30, "a test"); begun != taken {
		t.Errorf("gave back %d of %d bytes", begun, taken)
	}
	if !bytes.Equal(s.Data, content(3, 100)) || !bytes.Equal(held.Data, content(41, 100)) {
		t.Error("the bytes have changed")
	}
	if used := store.Returned().Used; used != taken {
		t.Errorf("%d of %d bytes are still in use", used, taken)
	}
	s.Release()
	s.Release() // of no effect
	if used := store.Returned().Used; used == 0 || used == taken {
		t.Errorf("%d of %d bytes are in use by one sample", used, taken)
	}
	if held.Hold.Release(); store.Returned().Used != 0 {
		t.Errorf("%d bytes are in use by none", store.Returned().Used)
	}
	if _, ok := g.cache.Locate(3); ok || g.cache.Has(41) {
		t.Error("samples that were given back are located")
	}
}

// TestSamplesThatWereGivenBackComeFromTheSource checks that they are not kept while memory is
// short, and not read for other nodes; and that they are brought again when it is not.
func TestSamplesThatWereGivenBackComeFromTheSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, class, _ := scarce(t, 40)
		defer g.close()
		w := &watched{}
		leave := g.cache.Watch(w)
		g.use.Fill(g.opened.Plan, func(int64) {})
		class.Allow(0)
		class.GiveBack(1, "a test")
		if slices.Sort(w.samples); len(w.samples) != 40 || w.samples[39] != 39 {
			t.Errorf("the watcher was told of samples %v", w.samples)
		}
		if d := class.Delay(); d < 2*time.Second {
			t.Errorf("the watcher's delay counts as %v", d)
		}
		before := g.source.Reads[5].Load()
		for range 2 {
			data, from, err := g.fetched(t, &Request{}, 5)
			if err != nil || from != Source || !bytes.Equal(data, content(5, 100)) {
				t.Errorf("from %v: %v", from, err)
			}
		}
		if n := g.source.Reads[5].Load() - before; n != 2 || g.cache.Has(5) ||
			g.cache.Destined(5) {
			t.Errorf("%d reads; held: %v", n, g.cache.Has(5))
		}
		if got := g.serve(t.Context(), 5); !errors.Is(got.err, source.ErrNoSample) {
			t.Errorf("for another node: %v", got.err)
		}
		class.Allow(1 << 30)
		if w.refills != 1 || !g.cache.Destined(5) {
			t.Errorf("%d refills; destined: %v", w.refills, g.cache.Destined(5))
		}
		leave()
		synctest.Wait() // the workers fill
		if held := len(g.stores[0].Held()); held != 40 {
			t.Errorf("%d of 40 samples were brought again", held)
		}
		if got := g.serve(t.Context(), 5); got.err != nil || !bytes.Equal(got.data, content(5, 100)) {
			t.Errorf("for another node, with room: %v", got.err)
		}
		class.GiveBack(1, "a test")
		if len(w.samples) != 40 {
			t.Error("a watcher that has left is told")
		}
	})
}

// TestLastSamplesOfThePlanGoFirst checks that a segment of samples that come late in the plan goes
// before one of samples that come early, and one of unplanned samples before both.
func TestLastSamplesOfThePlanGoFirst(t *testing.T) {
	g, class, _ := scarce(t, 120)
	defer g.close()
	plan := make([]int32, 0, 80)
	for id := int32(79); id >= 0; id-- {
		plan = append(plan, id)
	}
	g.use.Keep([][]int32{plan})
	var order []int32
	for range 3 {
		class.GiveBack(1, "a test")
		var gone []int32
		for _, first := range []int32{0, 40, 80} {
			if !g.stores[0].Has(int(first)) && !slices.Contains(order, first) {
				gone = append(gone, first)
			}
		}
		order = append(order, gone...)
	}
	if !slices.Equal(order, []int32{80, 0, 40}) {
		t.Errorf("the segments went in the order of samples %v", order)
	}
}

// TestSegmentsCloseWhenAllWatchersHaveSettled gives segments back while fetches go on.
func TestSegmentsCloseWhenAllWatchersHaveSettled(t *testing.T) {
	const samples = 200
	g, class, store := scarce(t, samples)
	defer g.close()
	var pending []func()
	var mu sync.Mutex
	for range 2 {
		defer g.cache.Watch(&watched{settle: func(settled, gone func()) {
			mu.Lock()
			defer mu.Unlock()
			pending = append(pending, settled, gone, settled, gone) // twice is once
		}})()
	}
	ctx, stop := context.WithCancel(t.Context())
	var fetchers sync.WaitGroup
	fetched := make(chan struct{})
	for range 3 {
		fetchers.Go(func() {
			for id := 0; ctx.Err() == nil; id = (id + 17) % samples {
				select {
				case fetched <- struct{}{}:
				default:
				}
				s, err := g.cache.Fetch(context.Background(), &Request{}, id, make([]byte, 100))
				if err != nil || !bytes.Equal(s.Data, content(id, 100)) {
					t.Errorf("sample %d: %v", id, err)
					return
				}
				s.Release()
			}
		})
	}
	for n := range 40 {
		if class.GiveBack(1, "a test"); n%4 == 3 {
			mu.Lock()
			due := pending
			pending = nil
			mu.Unlock()
			for _, f := range due {
				f()
			}
		}
		for range 20 { // lets the fetchers bring samples again
			<-fetched
		}
	}
	stop()
	fetchers.Wait()
	for _, f := range pending {
		f()
	}
	if r := store.Returned(); r.Segments < 10 || r.Used != 0 {
		t.Errorf("returned %+v", r)
	}
}
