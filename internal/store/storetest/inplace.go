package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/store"
)

// testInPlace tests stores that implement store.InPlace.
func testInPlace(t *testing.T, factory Factory) {
	if !implements[store.InPlace](t, factory) {
		t.Skip("the class's samples do not lie in shared memory")
	}
	runAll(t, factory, map[string]func(*testing.T, Factory){
		"Fill": testFill, "FailedFillReleasesItsBytes": testFailedFill,
		"SegmentIsReadOnly": testSegment, "ConcurrentFills": testConcurrentFills,
	})
}

// implements reports whether the class's stores implement I.
func implements[I any](t *testing.T, factory Factory) bool {
	c := factory(t, 1000)
	s := Open(t, c, Uniform(1, 1, 10), 1000)
	defer Close(t, s, c)
	_, ok := s.(I)
	return ok
}

func runAll(t *testing.T, factory Factory, tests map[string]func(*testing.T, Factory)) {
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { test(t, factory) })
	}
}

func fill(s store.Store, ds store.Dataset, id int) error {
	return s.(store.InPlace).Fill(id, func(dst []byte) (store.Origin, error) {
		if int64(len(dst)) != ds.Size(id) || cap(dst) != len(dst) {
			return store.Origin{},
				fmt.Errorf("%d bytes (room to append: %d) to fill", len(dst), cap(dst)-len(dst))
		}
		copy(dst, Bytes(ds, id))
		return OriginOf(id, dst), nil
	})
}

func testFill(t *testing.T, factory Factory) {
	c := factory(t, 250)
	ds := Uniform(1, 4, 100)
	s := Open(t, c, ds, 250)
	for _, id := range []int{2, 0} {
		if err := fill(s, ds, id); err != nil {
			t.Fatal(err)
		}
	}
	if err := fill(s, ds, 1); !errors.Is(err, store.ErrFull) {
		t.Fatalf("got %v, want ErrFull", err)
	}
	if err := fill(s, ds, 2); err == nil {
		t.Fatal("filled a sample that is held")
	}
	if err := fill(s, ds, 4); err == nil {
		t.Fatal("filled a sample that does not exist")
	}
	for _, id := range []int{0, 1, 2, 3, 4, -1} {
		v, ok := s.(store.InPlace).View(id)
		if want := id == 0 || id == 2; ok != want ||
			ok && (!bytes.Equal(v.Data, Bytes(ds, id)) || cap(v.Data) != len(v.Data)) {
			t.Fatalf("sample %d: a view of %d bytes (room to append: %d), %v", id, len(v.Data),
				cap(v.Data), ok)
		}
		if ok {
			if at, _ := s.(store.InPlace).Locate(id); at != v.At {
				t.Errorf("sample %d is at %+v, and its view at %+v", id, at, v.At)
			}
			v.Release()
		}
	}
	Check(t, s, ds, 2, 0)
	Close(t, s, c)
}

func testFailedFill(t *testing.T, factory Factory) {
	c := factory(t, 300)
	ds := Dataset(1, 100, 100, 100, 100, 100)
	s := Open(t, c, ds, 300)
	p := s.(store.InPlace)
	failure := errors.New("the source fails")
	// While a read that will fail holds some bytes, other samples take the rest.
	err := p.Fill(0, func([]byte) (store.Origin, error) {
		if s.Has(0) {
			t.Error("has a sample that is being filled")
		}
		if err := put(s, 0, Bytes(ds, 0)); err != nil { // does nothing
			t.Errorf("put a sample that is being filled: %v", err)
		}
		if err := fill(s, ds, 0); err == nil {
			t.Error("filled a sample that is being filled")
		}
		Put(t, s, ds, 1, 2)
		if err := put(s, 3, Bytes(ds, 3)); !errors.Is(err, store.ErrFull) {
			t.Errorf("put without room: %v", err)
		}
		return store.Origin{}, failure
	})
	if !errors.Is(err, failure) {
		t.Fatalf("got %v, want the reader's error", err)
	}
	Check(t, s, ds, 1, 2)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("a reader's panic was swallowed")
			}
		}()
		_ = p.Fill(4, func([]byte) (store.Origin, error) { panic("the reader's") })
	}()
	Put(t, s, ds, 3) // into the released bytes
	Check(t, s, ds, 1, 2, 3)
	Close(t, s, c)
}

func testSegment(t *testing.T, factory Factory) {
	c := factory(t, 10000)
	ds := Uniform(1, 3, 1000)
	s := Open(t, c, ds, 10000)
	p := s.(store.InPlace)
	Put(t, s, ds, 1)
	at, _ := p.Locate(1)
	memfd, size, ok := p.Segment(at.Segment)
	if !ok {
		t.Fatal("there is no such segment")
	}
	// Another process opens the same memory through its own descriptor.
	for _, flags := range []int{os.O_RDONLY, os.O_RDWR} {
		other, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", memfd.Fd()), flags, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		if _, err := unix.Mmap(int(other.Fd()), 0, int(size), unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_SHARED); err == nil {
			t.Fatal("the segment can be mapped for writing")
		} else if flags == os.O_RDWR && !errors.Is(err, unix.EPERM) {
			t.Fatalf("map for writing: %v, want EPERM", err)
		}
		if flags == os.O_RDWR {
			if _, err := other.WriteAt([]byte{1}, 0); !errors.Is(err, unix.EPERM) {
				t.Fatalf("write: %v, want EPERM", err)
			}
			for _, to := range []int64{0, size - 1, size + 1} {
				if err := other.Truncate(to); !errors.Is(err, unix.EPERM) {
					t.Fatalf("resize to %d: %v, want EPERM", to, err)
				}
			}
		}
		mapped, err := unix.Mmap(int(other.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		Put(t, s, ds, 0) // visible through an existing mapping
		for id := range 2 {
			now, ok := p.Locate(id)
			if !ok || now.Segment != at.Segment ||
				!bytes.Equal(mapped[now.Offset:now.Offset+1000], Bytes(ds, id)) {
				t.Fatalf("sample %d does not lie at %+v (located: %v)", id, now, ok)
			}
		}
		if err := unix.Munmap(mapped); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []int{-1, 2, 3} {
		if _, ok := p.Locate(id); ok {
			t.Errorf("located sample %d", id)
		}
	}
	Close(t, s, c)
}

// testConcurrentFills fills samples concurrently; every other read fails the first time.
func testConcurrentFills(t *testing.T, factory Factory) {
	const samples = 200
	c := factory(t, samples*500)
	ds := Uniform(1, samples, 500)
	s := Open(t, c, ds, samples*500)
	var workers sync.WaitGroup
	for g := range 4 {
		workers.Go(func() {
			for id := g; id < samples; id += 4 {
				if id%2 == 0 {
					err := s.(store.InPlace).Fill(id,
						func([]byte) (store.Origin, error) {
							return store.Origin{}, os.ErrInvalid
						})
					if !errors.Is(err, os.ErrInvalid) {
						t.Errorf("got %v", err)
					}
				}
				if err := fill(s, ds, id); err != nil {
					t.Errorf("sample %d: %v", id, err)
				}
			}
		})
	}
	workers.Wait()
	ids := []int{}
	for _, id := range s.Held() {
		ids = append(ids, int(id))
	}
	if len(ids) != samples {
		t.Fatalf("%d samples held, want all", len(ids))
	}
	Check(t, s, ds, ids...)
	Close(t, s, c)
}
