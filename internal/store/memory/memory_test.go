package memory_test

import (
	"runtime"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/store/memory"
	"github.com/hdmlp/hdmlp/internal/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// factory creates a class on a machine with capacity bytes of memory.
func factory(_ testing.TB, capacity int64) store.Class {
	var c *memory.Class
	c = memory.New(memory.Options{
		Limit: func() (int64, error) { return capacity - c.Taken(), nil },
	})
	return c
}

// pieces is factory for a class whose segments have one page each.
func pieces(_ testing.TB, capacity int64) store.Class {
	var c *memory.Class
	c = memory.New(memory.Options{
		Limit:   func() (int64, error) { return capacity - c.Taken(), nil },
		Segment: 4096,
	})
	return c
}

func TestClass(t *testing.T) { storetest.Run(t, factory) }

func TestClassOfSmallSegments(t *testing.T) { storetest.Run(t, pieces) }

func BenchmarkClass(b *testing.B) { storetest.Benchmark(b, factory) }

// TestMemoryIsSuppliedBeforeItIsFilled: what fills a sample finds its pages mapped, so that its
// time is that of the read alone.
func TestMemoryIsSuppliedBeforeItIsFilled(t *testing.T) {
	page, err := unix.Mmap(-1, 0, 4096, unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(page) //nolint:errcheck // nothing was written
	if err := unix.Madvise(page, unix.MADV_POPULATE_WRITE); err != nil {
		t.Skip("Linux 5.14 or later is needed: ", err)
	}
	runtime.LockOSThread() // of which faults are counted
	defer runtime.UnlockOSThread()
	const samples, size = 20, 100_001
	ds := storetest.Uniform(1, samples, size)
	s := storetest.Open(t, factory(t, 1<<30), ds, samples*size)
	defer storetest.Close(t, s)
	faults := func() int64 {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
			t.Fatal(err)
		}
		return u.Minflt
	}
	for id := range samples {
		err := s.(store.InPlace).Fill(id, func(dst []byte) (store.Origin, error) {
			before := faults()
			for i := range dst {
				dst[i] = byte(id)
			}
			if n := faults() - before; n > size/4096/4 {
				t.Errorf("sample %d: %d faults", id, n)
			}
			return store.Origin{}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestEmptyStoreAlwaysFits: a store of no bytes can be opened even if memory has run out, and idle
// stores are evicted for what others need.
func TestEmptyStoreAlwaysFits(t *testing.T) {
	left := int64(1 << 20)
	var c *memory.Class
	c = memory.New(memory.Options{Limit: func() (int64, error) { return left - c.Taken(), nil }})
	idle := storetest.Uniform(1, 10, 1000)
	s := storetest.Open(t, c, idle, 10_000)
	storetest.Put(t, s, idle, 1, 2, 3)
	storetest.Close(t, s)
	taken := c.Taken()
	if err := c.Yield(); err != nil || c.Taken() != taken || taken == 0 {
		t.Errorf("with room to spare, of %d bytes %d are left (%v)", taken, c.Taken(), err)
	}
	left = -1
	if err := c.Yield(); err != nil || c.Taken() != 0 {
		t.Errorf("without room, of %d bytes %d are left (%v)", taken, c.Taken(), err)
	}
	empty, err := c.Open(storetest.Uniform(2, 0, 0), 0)
	if err != nil {
		t.Fatal(err)
	}
	storetest.Close(t, empty, c)
}

// TestEarlierVersionsAreEvicted: what is cached of a directory's earlier contents is no use to
// anybody, whatever room there is.
func TestEarlierVersionsAreEvicted(t *testing.T) {
	here, there := [2]uint64{1, 7}, [2]uint64{1, 8}
	of := func(directory [2]uint64, tag byte, change func(*store.Dataset),
	) store.Dataset {
		ds := storetest.Uniform(tag, 4, 1000)
		ds.Directory, ds.About.Kind = directory, "folder"
		change(&ds)
		return ds
	}
	as := func(*store.Dataset) {}
	for name, c := range map[string]struct {
		first  store.Dataset
		opened bool // the first one still is
		second store.Dataset
		left   int
	}{
		"the same":          {of(here, 1, as), false, of(here, 1, as), 1},
		"another version":   {of(here, 1, as), false, of(here, 2, as), 0},
		"it is in use":      {of(here, 1, as), true, of(here, 2, as), 1},
		"another directory": {of(here, 1, as), false, of(there, 2, as), 1},
		"no directory":      {of([2]uint64{}, 1, as), false, of([2]uint64{}, 2, as), 1},
		"another source": {of(here, 1, as), false, of(here, 2, func(ds *store.Dataset) {
			ds.About.Kind = "lmdb"
		}), 1},
		"other extensions": {of(here, 1, as), false, of(here, 2, func(ds *store.Dataset) {
			ds.About.Extensions = []string{".jpg"}
		}), 1},
	} {
		t.Run(name, func(t *testing.T) {
			class := memory.New(memory.Options{})
			first := storetest.Open(t, class, c.first, 4000)
			storetest.Put(t, first, c.first, 1)
			if !c.opened {
				storetest.Close(t, first)
			}
			second := storetest.Open(t, class, c.second, 4000)
			if c.opened {
				storetest.Close(t, first)
			}
			again := storetest.Open(t, class, c.first, 4000)
			if n := len(again.Held()); n != c.left {
				t.Errorf("%d samples of the first one are left", n)
			}
			storetest.Close(t, again, second, class)
		})
	}
}
