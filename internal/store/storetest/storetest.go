// Package storetest is the conformance suite of storage classes (Run), and their benchmark
// (Benchmark). The test of a class calls both with a Factory.
package storetest

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hdmlp/hdmlp/internal/lib/digest"
	"github.com/hdmlp/hdmlp/internal/store"
)

// Factory creates an empty class that can hold capacity bytes of samples in total. It registers
// cleanups for what it creates besides the class.
type Factory func(t testing.TB, capacity int64) store.Class

// Run tests the classes that factory creates.
func Run(t *testing.T, factory Factory) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, Factory)
	}{
		{"RoundTrip", testRoundTrip},
		{"WrongCalls", testWrongCalls},
		{"ExactRoom", testExactRoom},
		{"SameStoreWhileOpen", testSameStoreWhileOpen},
		{"WarmWhenOpenedAgain", testWarm},
		{"EvictsIdleStores", testEviction},
		{"NeverEvictsOpenStores", testOpenStoresStay},
		{"Drop", testDrop},
		{"SimultaneousPuts", testSimultaneousPuts},
		{"Concurrency", testConcurrency},
		{"ConcurrentOpens", testConcurrentOpens},
		{"NoAllocations", testNoAllocations},
		{"Model", testModel},
		{"InPlace", testInPlace},
		{"Shrinker", testShrinker},
		{"Forms", testForms},
		{"FormReader", testFormReader},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, factory) })
	}
}

// Dataset returns a dataset whose samples have the given sizes. tag determines its fingerprint.
func Dataset(tag byte, sizes ...int64) store.Dataset {
	return store.Dataset{
		Fingerprint: [16]byte{tag, 0xda},
		Samples:     len(sizes),
		Size:        func(id int) int64 { return sizes[id] },
	}
}

// Uniform returns a dataset of n samples of one size.
func Uniform(tag byte, n int, size int64) store.Dataset {
	return Dataset(tag, slices.Repeat([]int64{size}, n)...)
}

// Bytes returns the bytes of a sample in the tests.
func Bytes(ds store.Dataset, id int) []byte {
	data := make([]byte, ds.Size(id))
	r := rand.New(rand.NewPCG(uint64(ds.Fingerprint[0]), uint64(id)))
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	return data
}

// OriginOf returns the origin of a sample with the given bytes.
func OriginOf(id int, data []byte) store.Origin {
	return store.Origin{
		Digest: digest.Of(data), Directory: 7, Instance: uint32(id) + 1000,
	}
}

// put puts data with its origin.
func put(s store.Store, id int, data []byte) error {
	return s.Put(id, data, OriginOf(id, data))
}

// Open opens a store, which the test has to close before its class.
func Open(t testing.TB, c store.Class, ds store.Dataset,
	capacity int64,
) store.Store {
	t.Helper()
	s, err := c.Open(ds, capacity)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return s
}

// Put puts samples, all of which must fit.
func Put(t testing.TB, s store.Store, ds store.Dataset, ids ...int) {
	t.Helper()
	for _, id := range ids {
		if err := put(s, id, Bytes(ds, id)); err != nil {
			t.Fatalf("put sample %d: %v", id, err)
		}
	}
}

// Check verifies that the store holds exactly the samples with these IDs, in this order, and that
// their bytes and origins are right.
func Check(t testing.TB, s store.Store, ds store.Dataset, ids ...int) {
	t.Helper()
	var held []int
	var sum int64
	for _, id := range s.Held() {
		held = append(held, int(id))
	}
	if !slices.Equal(held, ids) {
		t.Fatalf("held %v, want %v", held, ids)
	}
	for id := range ds.Samples {
		if s.Has(id) != slices.Contains(ids, id) {
			t.Fatalf("Has(%d) = %v", id, s.Has(id))
		}
		dst := make([]byte, ds.Size(id))
		err := s.Read(id, dst)
		if origin, ok := s.Origin(id); ok != s.Has(id) ||
			ok && origin != OriginOf(id, Bytes(ds, id)) {
			t.Fatalf("sample %d has the origin %+v (%v)", id, origin, ok)
		}
		switch {
		case !slices.Contains(ids, id):
			if !errors.Is(err, store.ErrNotHeld) {
				t.Fatalf("Read(%d) = %v, want ErrNotHeld", id, err)
			}
		case err != nil:
			t.Fatalf("Read(%d) = %v", id, err)
		case !bytes.Equal(dst, Bytes(ds, id)):
			t.Fatalf("sample %d has other bytes", id)
		default:
			sum += ds.Size(id)
		}
	}
	if total, used := s.Capacity(); used != sum || used > total {
		t.Fatalf("capacity: %d of %d in use, the samples have %d", used, total, sum)
	}
}

// Close closes stores or classes.
func Close(t testing.TB, closers ...interface{ Close() error }) {
	t.Helper()
	for _, c := range closers {
		if err := c.Close(); err != nil {
			t.Fatalf("close: %v", err)
		}
	}
}

func testRoundTrip(t *testing.T, factory Factory) {
	c := factory(t, 1<<20)
	if c.Kind() == "" {
		t.Error("a class without a kind")
	}
	ds := Dataset(1, 100, 1, 0, 5000, 4096, 33)
	s := Open(t, c, ds, 1<<20)
	Check(t, s, ds)
	Put(t, s, ds, 3, 0, 2, 5)
	Check(t, s, ds, 3, 0, 2, 5)
	Put(t, s, ds, 3, 1, 3) // samples that are held do not change
	Check(t, s, ds, 3, 0, 2, 5, 1)
	data := Bytes(ds, 4)
	if err := put(s, 4, data); err != nil {
		t.Fatal(err)
	}
	clear(data) // the store has a copy
	Check(t, s, ds, 3, 0, 2, 5, 1, 4)
	Close(t, s, c)
}

func testWrongCalls(t *testing.T, factory Factory) {
	c := factory(t, 1000)
	ds := Uniform(1, 2, 10)
	s := Open(t, c, ds, 1000)
	Put(t, s, ds, 0)
	for name, err := range map[string]error{
		"put below":  put(s, -1, make([]byte, 10)),
		"put above":  put(s, 2, make([]byte, 10)),
		"put short":  put(s, 1, make([]byte, 9)),
		"put long":   put(s, 1, make([]byte, 11)),
		"read short": s.Read(0, make([]byte, 9)),
		"read long":  s.Read(0, make([]byte, 11)),
		"close":      c.Close(), // a store is open
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for _, id := range []int{-1, 2, 1 << 40} {
		if s.Has(id) {
			t.Errorf("has sample %d", id)
		}
		if err := s.Read(id, nil); !errors.Is(err, store.ErrNotHeld) {
			t.Errorf("read sample %d: %v", id, err)
		}
	}
	if _, err := c.Open(Uniform(1, 3, 10), 10); err == nil {
		t.Error("opened with another number of samples under the same fingerprint")
	}
	if _, err := c.Open(ds, -1); err == nil {
		t.Error("opened with negative capacity")
	}
	Check(t, s, ds, 0)
	Close(t, s)
	if err := s.Close(); err == nil {
		t.Error("closed more often than opened")
	}
	Close(t, c)
	if _, err := c.Open(ds, 10); err == nil {
		t.Error("opened a store of a closed class")
	}
}

// testDrop checks that a dropped sample is not held, even after the store was reopened, and can be
// put again. A View of it keeps its bytes.
func testDrop(t *testing.T, factory Factory) {
	c := factory(t, 1000)
	ds := Uniform(1, 4, 100)
	s := Open(t, c, ds, 1000)
	Put(t, s, ds, 0, 1, 2)
	var view []byte
	if p, ok := s.(store.InPlace); ok {
		v, _ := p.View(1)
		defer v.Release()
		view = v.Data
	}
	s.Drop(1)
	s.Drop(1, 3, -1, 4, 1)
	s.Drop()
	if err := put(s, 3, Bytes(ds, 3)); err != nil {
		t.Fatal(err)
	}
	if view != nil && !bytes.Equal(view, Bytes(ds, 1)) {
		t.Error("the bytes of a dropped sample were reused")
	}
	if s.Has(1) || slices.Contains(s.Held(), 1) {
		t.Error("a dropped sample is held")
	}
	if err := s.Read(1, make([]byte, 100)); !errors.Is(err, store.ErrNotHeld) {
		t.Errorf("read a dropped sample: %v", err)
	}
	Close(t, s)
	s = Open(t, c, ds, 1000)
	if s.Has(1) || !s.Has(0) || !s.Has(3) {
		t.Errorf("the reopened store holds %v", s.Held())
	}
	Put(t, s, ds, 1)
	dst := make([]byte, 100)
	if err := s.Read(1, dst); err != nil || !bytes.Equal(dst, Bytes(ds, 1)) {
		t.Errorf("a sample that was put again: %v", err)
	}
	Close(t, s, c)
}

func testExactRoom(t *testing.T, factory Factory) {
	r := rand.New(rand.NewPCG(1, 2))
	sizes := make([]int64, 200)
	var sum int64
	for i := range sizes {
		sizes[i] = r.Int64N(3000)
		sum += sizes[i]
	}
	ds := Dataset(1, append(sizes, 1, 0)...)
	c := factory(t, sum)
	s := Open(t, c, ds, sum)
	ids := r.Perm(200)
	Put(t, s, ds, ids...)
	if total, used := s.Capacity(); total != sum || used != sum {
		t.Fatalf("%d of %d in use, want %d of %d", used, total, sum, sum)
	}
	if err := put(s, 200, []byte{1}); !errors.Is(err, store.ErrFull) {
		t.Fatalf("one byte more: %v, want ErrFull", err)
	}
	Check(t, s, ds, ids...)
	Put(t, s, ds, 201) // zero bytes always fit
	Check(t, s, ds, append(ids, 201)...)
	Close(t, s, c)
}

func testNoAllocations(t *testing.T, factory Factory) {
	c := factory(t, 10000)
	ds := Uniform(1, 2, 5000)
	s := Open(t, c, ds, 10000)
	Put(t, s, ds, 0)
	dst := make([]byte, 5000)
	inPlace, _ := s.(store.InPlace)
	allocations := testing.AllocsPerRun(100, func() {
		if !s.Has(0) || s.Has(1) || s.Read(0, dst) != nil || s.Read(1, dst) == nil {
			t.Error("wrong results")
		}
		if inPlace != nil {
			if _, ok := inPlace.Locate(0); !ok {
				t.Error("not located")
			}
		}
	})
	if allocations != 0 {
		t.Errorf("%v allocations in Has, Locate and Read", allocations)
	}
	Close(t, s, c)
}
