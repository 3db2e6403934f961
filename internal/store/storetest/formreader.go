package storetest

import (
	"bytes"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/hdmlp/hdmlp/internal/lib/digest"
	"github.com/hdmlp/hdmlp/internal/store"
)

// testFormReader tests stores that implement store.FormReader.
func testFormReader(t *testing.T, factory Factory) {
	if !implements[store.FormReader](t, factory) {
		t.Skip("the class has no forms, or in memory")
	}
	runAll(t, factory, map[string]func(*testing.T, Factory){
		"Replace": testReadReplace, "Room": testReadRoom, "Reopened": testReadReopened,
		"Less": testReadLess, "Concurrent": testReadConcurrent,
	})
}

// replaceRead puts the forms of samples in their place.
func replaceRead(t *testing.T, s store.Store, ds store.Dataset, ids ...int) {
	t.Helper()
	for _, id := range ids {
		if err := s.(store.FormReader).Replace(id, 7, formOf(ds, id)); err != nil {
			t.Fatalf("sample %d: %v", id, err)
		}
	}
}

// checkReadForm checks that a sample is held in its form, and found in no other way.
func checkReadForm(t *testing.T, s store.Store, ds store.Dataset, id int) {
	t.Helper()
	p, want := s.(store.FormReader), formOf(ds, id)
	info, ok := p.FormInfo(id)
	if !ok || info != (store.FormInfo{Bytes: int64(len(want)), Digest: digest.Of(want), Kind: 7}) {
		t.Fatalf("sample %d: %+v, %v", id, info, ok)
	}
	got := make([]byte, len(want))
	if err := p.ReadForm(id, info, got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("sample %d: %v", id, err)
	}
	clear(got)
	if err := p.ReadFormNow(id, info, got); !errors.Is(err, store.ErrWait) &&
		(err != nil || !bytes.Equal(got, want)) {
		t.Errorf("sample %d, at once: %v", id, err)
	}
	other := info
	other.Digest++
	if err := p.ReadForm(id, other, got); !errors.Is(err, store.ErrNotHeld) {
		t.Errorf("another form of sample %d: %v", id, err)
	}
	if origin, ok := s.Origin(id); !ok || origin != OriginOf(id, Bytes(ds, id)) {
		t.Errorf("sample %d has the origin %+v, %v", id, origin, ok)
	}
	if !s.Has(id) || !slices.Contains(s.Held(), int32(id)) {
		t.Errorf("sample %d is not held", id)
	}
	if err := s.Read(id, make([]byte, ds.Size(id))); !errors.Is(err, store.ErrForm) {
		t.Errorf("sample %d is read: %v", id, err)
	}
	if err := p.ReadNow(id, make([]byte, ds.Size(id))); !errors.Is(err, store.ErrWait) {
		t.Errorf("sample %d is read at once: %v", id, err)
	}
}

func testReadReplace(t *testing.T, factory Factory) {
	ds := Uniform(1, 5, 100)
	s := Open(t, factory(t, 10_000), ds, 10_000)
	p := s.(store.FormReader)
	Put(t, s, ds, 3, 1, 2)
	replaceRead(t, s, ds, 1, 3)
	checkReadForm(t, s, ds, 1)
	checkReadForm(t, s, ds, 3)
	checkRead(t, s, ds, 2)
	if held := s.Held(); !slices.Equal(held, []int32{3, 1, 2}) {
		t.Errorf("held: %v", held)
	}
	if f := p.Formed(); f != (store.Formed{Samples: 2, Bytes: 234, AsRead: 200}) {
		t.Errorf("formed: %+v", f)
	}
	info, _ := p.FormInfo(1)
	if err := p.Replace(1, 0, Bytes(ds, 1)); err != nil {
		t.Fatal(err)
	}
	if err := p.ReadForm(1, info, make([]byte, info.Bytes)); !errors.Is(err, store.ErrNotHeld) {
		t.Errorf("the form that there was: %v", err)
	}
	s.Drop(3)
	checkRead(t, s, ds, 1, 2)
	if f := p.Formed(); f != (store.Formed{}) {
		t.Errorf("formed: %+v", f)
	}
	for _, id := range []int{3, 4} {
		if _, ok := p.FormInfo(id); ok {
			t.Errorf("sample %d, which is not held, has a form", id)
		}
	}
	checkNotReplaced(t, ds, p)
}

// testReadRoom checks that forms take no room of samples as read, and at most half of what is left.
func testReadRoom(t *testing.T, factory Factory) {
	ds := Uniform(1, 5, 100)
	s := Open(t, factory(t, 700), ds, 500)
	p := s.(store.FormReader)
	if room := p.FormRoom(); room != 100 {
		t.Errorf("room for %d bytes, want 100 of the 200 that are left", room)
	}
	Put(t, s, ds, 0, 1, 2)
	replaceRead(t, s, ds, 0, 1, 2)
	if room := p.FormRoom(); room != 100-3*17 {
		t.Errorf("room for %d bytes", room)
	}
	Put(t, s, ds, 3, 4)
	if total, used := s.Capacity(); total != 551 || used != 551 {
		t.Errorf("%d of %d bytes", used, total)
	}
	s.Drop(0)
	Put(t, s, ds, 0)
	checkRead(t, s, ds, 0, 3, 4)
	if room := p.FormRoom(); room != 100-2*17 {
		t.Errorf("room for %d bytes", room)
	}
}

func testReadReopened(t *testing.T, factory Factory) {
	c := factory(t, 10_000)
	ds := Uniform(1, 4, 100)
	s := Open(t, c, ds, 400)
	Put(t, s, ds, 2, 1, 0, 3)
	replaceRead(t, s, ds, 1, 0)
	if err := s.(store.FormReader).Replace(0, 0, Bytes(ds, 0)); err != nil {
		t.Fatal(err)
	}
	s.Drop(3)
	Close(t, s)
	s = Open(t, c, ds, 400)
	checkReadForm(t, s, ds, 1)
	checkRead(t, s, ds, 2, 0)
	if f := s.(store.FormReader).Formed(); f != (store.Formed{Samples: 1, Bytes: 117, AsRead: 100}) {
		t.Errorf("formed: %+v", f)
	}
	if held := s.Held(); !slices.Equal(held, []int32{2, 1, 0}) {
		t.Errorf("held: %v", held)
	}
	Put(t, s, ds, 3)
	checkRead(t, s, ds, 3)
}

// testReadLess checks that a store which is opened again with less keeps as many samples as if they
// were as read.
func testReadLess(t *testing.T, factory Factory) {
	c := factory(t, 10_000)
	ds := Uniform(1, 6, 100)
	s := Open(t, c, ds, 600)
	Put(t, s, ds, 5, 4, 3, 2, 1, 0)
	replaceRead(t, s, ds, 5, 4, 1, 0)
	Close(t, s)
	s = Open(t, c, ds, 350)
	checkReadForm(t, s, ds, 5)
	checkReadForm(t, s, ds, 4)
	checkRead(t, s, ds, 3)
	if held := s.Held(); !slices.Equal(held, []int32{5, 4, 3}) {
		t.Errorf("held: %v", held)
	}
}

// testReadConcurrent checks that readers get the sample or the form while one becomes the other,
// and others are dropped and put again, and that all is found again afterwards.
func testReadConcurrent(t *testing.T, factory Factory) {
	const samples, rounds = 8, 30
	c := factory(t, 100_000)
	ds := Uniform(1, 2*samples, 1000)
	s := Open(t, c, ds, 2*samples*1000)
	p := s.(store.FormReader)
	for id := range 2 * samples {
		Put(t, s, ds, id)
	}
	var writers, readers sync.WaitGroup
	done := make(chan struct{})
	for w := range 2 {
		writers.Go(func() {
			for n := range rounds {
				for id := range samples {
					kind, data := uint8(7), formOf(ds, id)
					if n%2 == 1 {
						kind, data = 0, Bytes(ds, id)
					}
					// ErrNotHeld: the other one was sooner.
					if err := p.Replace(id, kind, data); err != nil &&
						!errors.Is(err, store.ErrNotHeld) {
						t.Errorf("replace: %v", err)
					}
					if id += samples; id%2 == w {
						s.Drop(id)
						if err := put(s, id, Bytes(ds, id)); err != nil {
							t.Errorf("put: %v", err)
						}
						_ = p.Replace(id, 7, formOf(ds, id))
					}
				}
			}
		})
		readers.Go(func() {
			sample, form := make([]byte, 1000), make([]byte, 1017)
			for id := 0; ; id = (id + 1) % samples {
				select {
				case <-done:
					return
				default:
				}
				err := s.Read(id, sample)
				if info, ok := p.FormInfo(id); ok && errors.Is(err, store.ErrForm) {
					if err = p.ReadForm(id, info, form); err == nil && !bytes.Equal(form, formOf(ds, id)) {
						t.Error("another form")
					}
				} else if err == nil && !bytes.Equal(sample, Bytes(ds, id)) {
					t.Error("another sample")
				}
				if err != nil && !errors.Is(err, store.ErrForm) && !errors.Is(err, store.ErrNotHeld) {
					t.Errorf("read: %v", err)
				}
				if !s.Has(id) {
					t.Error("a copy that was replaced was not held for a time")
				}
			}
		})
	}
	writers.Wait()
	close(done)
	readers.Wait()
	Close(t, s)
	s = Open(t, c, ds, 2*samples*1000)
	if len(s.Held()) != 2*samples {
		t.Errorf("%d samples are held", len(s.Held()))
	}
	for id := range 2 * samples {
		if _, ok := s.(store.FormReader).FormInfo(id); ok {
			checkReadForm(t, s, ds, id)
		} else {
			checkRead(t, s, ds, id)
		}
	}
}
