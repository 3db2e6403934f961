package storetest

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/store"
)

// compacting is a store that moves samples to make room.
type compacting interface {
	shrinking
	store.Compactor
}

// testCompactor tests stores that implement store.Compactor.
func testCompactor(t *testing.T, factory Factory) {
	if !implements[store.Compactor](t, factory) {
		t.Skip("the class moves no samples to make room")
	}
	if !implements[compacting](t, factory) {
		t.Fatal("the class moves samples, and notifies no tenants of it")
	}
	runAll(t, factory, map[string]func(*testing.T, Factory){
		"Compacts": testCompact, "CompactsWithinTheCapacity": testCompactWithin,
		"CompactEnds": testCompactEnds, "CompactsWhileUsed": testCompactWhileUsed,
	})
}

// sparse returns an open store of 40 samples of 1000 bytes of which all but every fourth, from 0
// on, were dropped, and what is left.
func sparse(t *testing.T, factory Factory) (c store.Class, p compacting,
	ds store.Dataset, left []int,
) {
	c = factory(t, 40_000)
	ds = Uniform(1, 40, 1000)
	p = Open(t, c, ds, 40_000).(compacting)
	for id := range 40 {
		Put(t, p, ds, id)
	}
	for id := range 40 {
		if id%4 == 0 {
			left = append(left, id)
		} else {
			p.Drop(id)
		}
	}
	return c, p, ds, left
}

// testCompact checks that the room of dropped samples can be used, that the samples that are left
// keep their bytes, order and origins, and that views see the bytes where they were.
func testCompact(t *testing.T, factory Factory) {
	c, p, ds, left := sparse(t, factory)
	var tenant Tenant
	defer p.Join(&tenant)()
	if err := put(p, 1, Bytes(ds, 1)); !errors.Is(err, store.ErrFull) {
		t.Errorf("put into the bytes of dropped samples: %v", err)
	}
	v, _ := p.View(8)
	p.Compact(t.Context(), 0) // nothing to do
	if now, _ := p.Locate(8); now != v.At || len(tenant.Told) > 0 {
		t.Errorf("moved to %+v", now)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Compact(t.Context(), 30_000)
	}()
	for ended := false; !ended; runtime.Gosched() {
		select {
		case <-done:
			ended = true // its last notifications are still to be taken
		default:
		}
		for _, told := range tenant.take() {
			if len(told.Samples) > 0 {
				t.Errorf("samples %v were not moved", told.Samples)
			} else {
				told.Settled()
				told.Gone()
			}
		}
	}
	Check(t, p, ds, left...)
	if now, ok := p.Locate(8); !ok || now == v.At {
		t.Errorf("sample 8 is still at %+v", now)
	}
	if !bytes.Equal(v.Data, Bytes(ds, 8)) {
		t.Error("a view has other bytes")
	}
	if r := p.Returned(); r.Released == 0 || r.Segments > 0 || r.Used > r.Released {
		t.Errorf("returned %+v", r)
	}
	v.Release()
	if used := p.Returned().Used; used > 0 {
		t.Errorf("%d bytes are used by nothing", used)
	}
	for id := range 40 {
		if id%4 != 0 {
			Put(t, p, ds, id)
			left = append(left, id)
		}
	}
	Check(t, p, ds, left...)
	Close(t, p, c)
}

// testCompactWithin compacts a store whose memory processes do not let go of: what they map and
// what samples take is never more than the capacity and a segment, and Compact ends.
func testCompactWithin(t *testing.T, factory Factory) {
	synctest.Test(t, func(t *testing.T) {
		c, p, ds, left := sparse(t, factory)
		var segment int64
		for _, e := range p.Segments() {
			segment = max(segment, e.Bytes)
		}
		var tenant Tenant
		leave := p.Join(&tenant)
		begun := time.Now()
		p.Compact(t.Context(), 30_000)
		if d := time.Since(begun); d > time.Minute {
			t.Errorf("waited %v", d)
		}
		within := func() {
			t.Helper()
			if total, used := p.Capacity(); used+p.Returned().Used > total+segment {
				t.Errorf("%d bytes of samples, and %d in use, of %d", used, p.Returned().Used, total)
			}
		}
		within()
		for id := range 40 {
			if err := put(p, id, Bytes(ds, id)); err != nil &&
				!errors.Is(err, store.ErrFull) {
				t.Fatal(err)
			}
			within()
		}
		for _, told := range tenant.Told {
			told.Settled()
			told.Gone()
		}
		p.Compact(t.Context(), 40_000)
		for id := range 40 {
			Put(t, p, ds, id)
		}
		for _, id := range left {
			if dst := make([]byte, 1000); p.Read(id, dst) != nil ||
				!bytes.Equal(dst, Bytes(ds, id)) {
				t.Errorf("sample %d has other bytes", id)
			}
		}
		leave()
		Close(t, p, c)
	})
}

// testCompactEnds checks that Compact waits for nothing once its context is done, and that what it
// has left is as it was.
func testCompactEnds(t *testing.T, factory Factory) {
	synctest.Test(t, func(t *testing.T) {
		c, p, ds, left := sparse(t, factory)
		var tenant Tenant
		leave := p.Join(&tenant)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.Compact(ctx, 40_000) // more than there is: it would wait
		}()
		synctest.Wait()
		cancel()
		begun := time.Now()
		<-done
		if d := time.Since(begun); d > 0 {
			t.Errorf("waited %v", d)
		}
		for _, id := range left {
			if dst := make([]byte, 1000); p.Read(id, dst) != nil ||
				!bytes.Equal(dst, Bytes(ds, id)) {
				t.Errorf("sample %d is lost", id)
			}
		}
		for _, told := range tenant.Told {
			told.Settled()
			told.Gone()
		}
		leave()
		p.Compact(t.Context(), 30_000)
		Check(t, p, ds, left...)
		Close(t, p, c)
	})
}

// testCompactWhileUsed drops, adds, reads and views samples while the store is compacted, and gives
// segments back.
func testCompactWhileUsed(t *testing.T, factory Factory) {
	const samples, rounds = 64, 200
	c := factory(t, samples*1000)
	ds := Uniform(1, samples, 1000)
	p := Open(t, c, ds, samples*1000).(compacting)
	want := make([][]byte, samples)
	for id := range want {
		want[id] = Bytes(ds, id)
	}
	var stop atomic.Bool
	var users sync.WaitGroup
	for n := range 2 {
		users.Go(func() {
			r := rand.New(rand.NewPCG(uint64(n), 1))
			dst := make([]byte, 1000)
			for !stop.Load() {
				id := r.IntN(samples)
				if v, ok := p.View(id); ok {
					runtime.Gosched()
					if !bytes.Equal(v.Data, want[id]) {
						t.Errorf("sample %d has other bytes in place", id)
					}
					v.Release()
				}
				switch err := p.Read(id, dst); {
				case errors.Is(err, store.ErrNotHeld):
				case err != nil || !bytes.Equal(dst, want[id]):
					t.Errorf("sample %d has other bytes: %v", id, err)
				}
				if origin, ok := p.Origin(id); ok && origin != OriginOf(id, want[id]) {
					t.Errorf("sample %d has the origin %+v", id, origin)
				}
			}
		})
	}
	users.Go(func() {
		for id := 0; !stop.Load(); id = (id + 1) % samples {
			if err := put(p, id, want[id]); err != nil && !errors.Is(err, store.ErrFull) {
				t.Error(err)
			}
			runtime.Gosched()
		}
	})
	users.Go(func() {
		r := rand.New(rand.NewPCG(3, 1))
		for !stop.Load() {
			if p.Drop(r.IntN(samples), r.IntN(samples)); r.IntN(20) == 0 {
				for _, e := range p.Segments() {
					p.GiveBack(e.Number, "a test")
				}
			}
			runtime.Gosched()
		}
	})
	for range rounds {
		p.Compact(t.Context(), samples*1000)
		if total, used := p.Capacity(); used < 0 || used > total {
			t.Errorf("%d of %d bytes are in use", used, total)
		}
	}
	stop.Store(true)
	users.Wait()
	p.Compact(t.Context(), samples*1000)
	var held []int
	for _, id := range p.Held() {
		held = append(held, int(id))
	}
	if Check(t, p, ds, held...); p.Returned().Used != 0 {
		t.Errorf("returned %+v", p.Returned())
	}
	Close(t, p, c)
}
