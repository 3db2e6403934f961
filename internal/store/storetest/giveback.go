package storetest

import (
	"bytes"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/store"
)

// Tenant is a tenant of a store that settles when the test has it do so.
type Tenant struct {
	mu sync.Mutex // guards the following
	// Told has the segments that were given back.
	Told    []Told
	refills int
}

// Told is a notification of a segment.
type Told struct {
	Segment       uint32
	Samples       []int32
	Settled, Gone func()
}

// Vacate implements store.Tenant.
func (t *Tenant) Vacate(segment uint32, samples []int32, settled, gone func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Told = append(t.Told, Told{segment, samples, settled, gone})
}

// Refill implements store.Tenant.
func (t *Tenant) Refill() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refills++
}

// Refills returns how often Refill was called.
func (t *Tenant) Refills() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.refills
}

// Delay implements store.Tenant.
func (t *Tenant) Delay() time.Duration { return time.Second }

// Rank implements store.Tenant: samples are wanted by ID.
func (t *Tenant) Rank() func(id int32) float64 {
	return func(id int32) float64 { return float64(id) / 1e6 }
}

// shrinking is a store that gives memory back. Its samples lie in shared memory.
type shrinking interface {
	store.Store
	store.InPlace
	store.Shrinker
}

// testShrinker tests stores that implement store.Shrinker.
func testShrinker(t *testing.T, factory Factory) {
	if !implements[store.Shrinker](t, factory) {
		t.Skip("the class gives no memory back")
	}
	if !implements[shrinking](t, factory) {
		t.Fatal("the class gives back memory that is not shared")
	}
	runAll(t, factory, map[string]func(*testing.T, Factory){
		"GivesSegmentsBack": testGiveBack, "DropsSegments": testDropSegment,
		"ViewsOutliveSegments": testViewsOutliveSegments,
	})
}

// testGiveBack checks the life of a segment that is given back while a batch names it.
func testGiveBack(t *testing.T, factory Factory) {
	c := factory(t, 10_000)
	ds := Uniform(1, 10, 100)
	s := Open(t, c, ds, 10_000)
	p := s.(shrinking)
	var tenant Tenant
	leave := p.Join(&tenant)
	Put(t, s, ds, 4, 2)
	at, _ := p.Locate(4)
	if all := p.Segments(); len(all) == 0 || all[0].Number != at.Segment ||
		!slices.Contains(all[0].Held, 4) || all[0].Bytes < 100 {
		t.Fatalf("segments %+v", all)
	}
	err := p.Fill(1, func(dst []byte) (store.Origin, error) {
		if now, _ := p.Locate(2); now.Segment == at.Segment && p.GiveBack(at.Segment, "a test") {
			t.Error("gave back a segment to which a sample is being added")
		}
		copy(dst, Bytes(ds, 1))
		return OriginOf(1, dst), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if p.GiveBack(at.Segment+1000, "a test") {
		t.Error("gave back a segment that does not exist")
	}
	for _, e := range p.Segments() {
		if !p.GiveBack(e.Number, "a test") || p.GiveBack(e.Number, "a test") {
			t.Errorf("segment %d was not given back once", e.Number)
		}
	}
	Check(t, s, ds)
	if r := p.Returned(); r.Bytes < 300 || r.Used != r.Bytes || r.Why != "a test" ||
		r.Segments != len(tenant.Told) || r.Last.IsZero() {
		t.Errorf("returned %+v", r)
	}
	var lost []int32
	for _, told := range tenant.Told {
		lost = append(lost, told.Samples...)
		if _, _, ok := p.Segment(told.Segment); !ok {
			t.Error("a batch may still name the segment, but it is closed")
		}
	}
	if slices.Sort(lost); !slices.Equal(lost, []int32{1, 2, 4}) {
		t.Errorf("the tenant was told of samples %v", lost)
	}
	Put(t, s, ds, 2, 9) // at another place
	if now, ok := p.Locate(2); !ok || now.Segment == at.Segment {
		t.Errorf("sample 2 is at %+v", now)
	}
	Check(t, s, ds, 2, 9)
	for _, told := range tenant.Told {
		told.Settled()
		told.Settled() // of no effect
		if _, _, ok := p.Segment(told.Segment); ok {
			t.Error("the segment is open although nothing refers to it")
		}
		told.Gone()
	}
	if r := p.Returned(); r.Used != 0 {
		t.Errorf("returned %+v", r)
	}
	leave()
	for _, e := range p.Segments() {
		p.GiveBack(e.Number, "a test")
	}
	if Check(t, s, ds); p.Returned().Used != 0 || len(tenant.Told) == 0 {
		t.Errorf("without tenants, returned %+v", p.Returned())
	}
	Close(t, s, c)
}

// testDropSegment checks that dropping the last sample of a segment gives it back.
func testDropSegment(t *testing.T, factory Factory) {
	c := factory(t, 10_000)
	ds := Uniform(1, 10, 100)
	s := Open(t, c, ds, 10_000)
	p := s.(shrinking)
	Put(t, s, ds, 0, 1, 2)
	for id := range 3 {
		if len(p.Segments()) != 1 {
			t.Errorf("with sample %d it has %+v", id, p.Segments())
		}
		s.Drop(id)
	}
	if r := p.Returned(); r.Bytes != 0 || r.Segments != 0 || r.Used != 0 ||
		len(p.Segments()) != 0 {
		t.Errorf("returned %+v, and has %+v", r, p.Segments())
	}
	if total, used := s.Capacity(); used != 0 || total != 10_000 {
		t.Errorf("%d of %d in use", used, total)
	}
	Put(t, s, ds, 0, 5)
	Check(t, s, ds, 0, 5)
	Close(t, s, c)
}

// testViewsOutliveSegments gives segments back while other goroutines read, view and add samples.
func testViewsOutliveSegments(t *testing.T, factory Factory) {
	const samples = 64
	c := factory(t, samples*1000)
	ds := Uniform(1, samples, 1000)
	s := Open(t, c, ds, samples*1000)
	p := s.(shrinking)
	want := make([][]byte, samples)
	for id := range want {
		want[id] = Bytes(ds, id)
	}
	var stop atomic.Bool
	var users sync.WaitGroup
	for range 2 {
		users.Go(func() {
			dst := make([]byte, 1000)
			for id := 0; !stop.Load(); id = (id + 7) % samples {
				if v, ok := p.View(id); ok {
					if !bytes.Equal(v.Data, want[id]) {
						t.Errorf("sample %d has other bytes in place", id)
					}
					v.Release()
				}
				switch err := s.Read(id, dst); {
				case errors.Is(err, store.ErrNotHeld):
				case err != nil || !bytes.Equal(dst, want[id]):
					t.Errorf("sample %d has other bytes: %v", id, err)
				}
				runtime.Gosched()
			}
		})
	}
	users.Go(func() {
		for id := 0; !stop.Load(); id = (id + 1) % samples {
			if err := put(s, id, want[id]); err != nil && !errors.Is(err, store.ErrFull) {
				t.Error(err)
			}
			runtime.Gosched()
		}
	})
	for given := 0; given < 50; runtime.Gosched() {
		for _, e := range p.Segments() {
			if p.GiveBack(e.Number, "a test") {
				given++
			}
		}
	}
	stop.Store(true)
	users.Wait()
	if r := p.Returned(); r.Used != 0 {
		t.Errorf("returned %+v", r)
	}
	Close(t, s, c)
}
