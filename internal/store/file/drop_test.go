package file_test

import (
	"bytes"
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/store/file"
	"github.com/hdmlp/hdmlp/internal/store/file/disk"
	"github.com/hdmlp/hdmlp/internal/store/storetest"
)

// watchedDisk counts writes to indices, and calls functions before and after each read of data.
type watchedDisk struct {
	disk.Disk
	before, after func()
	writes        atomic.Int32
}

func (d *watchedDisk) Open(dir int, name, path string, flags int) (disk.File, error) {
	f, err := d.Disk.Open(dir, name, path, flags)
	return &watchedFile{f, d, name}, err
}

type watchedFile struct {
	disk.File
	disk *watchedDisk
	name string
}

func (f *watchedFile) ReadAt(b []byte, off int64) (int, error) {
	if f.name == "data" && f.disk.before != nil {
		f.disk.before()
		defer f.disk.after()
	}
	return f.File.ReadAt(b, off)
}

func (f *watchedFile) WriteAt(b []byte, off int64) (int, error) {
	if f.name == "index" {
		f.disk.writes.Add(1)
	}
	return f.File.WriteAt(b, off)
}

func watchedClass(t *testing.T) (*file.Class, *watchedDisk) {
	d := &watchedDisk{Disk: bigDisk}
	c, err := file.New(file.Options{Dir: t.TempDir(), Capacity: 1 << 30, Reserve: 1, Disk: d})
	if err != nil {
		t.Fatal(err)
	}
	return c, d
}

// TestReadOfADroppedSampleIsNotCorrupt drops a sample, and reuses its bytes, while it is read: that
// is no corrupt copy, and nothing else is dropped for it.
func TestReadOfADroppedSampleIsNotCorrupt(t *testing.T) {
	ds := storetest.Uniform(1, 5, 100)
	nothing := func(store.Store) {}
	for name, c := range map[string]struct {
		before, after func(s store.Store) // the bytes of sample 1 are read
		err           error
		held          []int
	}{
		"reused": {func(s store.Store) {
			s.Drop(1)
			storetest.Put(t, s, ds, 4)
		}, nothing, store.ErrNotHeld, []int{0, 2, 4}},
		"put again elsewhere": {func(s store.Store) {
			s.Drop(1)
			storetest.Put(t, s, ds, 3, 1)
		}, nothing, nil, []int{0, 2, 3, 1}},
		"put again in the same place": {func(s store.Store) {
			s.Drop(1)
			storetest.Put(t, s, ds, 4)
		}, func(s store.Store) {
			s.Drop(4)
			storetest.Put(t, s, ds, 1)
		}, nil, []int{0, 2, 1}},
		"dropped with others": {func(s store.Store) {
			s.Drop(0, 1)
			storetest.Put(t, s, ds, 3, 4)
		}, nothing, store.ErrNotHeld, []int{2, 3, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			class, d := watchedClass(t)
			s := storetest.Open(t, class, ds, 400)
			storetest.Put(t, s, ds, 0, 1, 2)
			d.before = func() {
				d.before = nil
				c.before(s)
			}
			d.after = func() { c.after(s) }
			dst := make([]byte, 100)
			if err := s.Read(1, dst); !errors.Is(err, c.err) ||
				err == nil && !bytes.Equal(dst, storetest.Bytes(ds, 1)) {
				t.Errorf("got %v, want %v", err, c.err)
			}
			storetest.Check(t, s, ds, c.held...)
			storetest.Close(t, s, class)
		})
	}
}

// TestManySamplesAreDroppedWithFewWrites checks that the index is not written for each sample, and
// that the bytes of all are free.
func TestManySamplesAreDroppedWithFewWrites(t *testing.T) {
	const samples = 40_000
	class, d := watchedClass(t)
	ds := storetest.Uniform(1, samples, 10)
	s := storetest.Open(t, class, ds, samples*10)
	var odd, even []int
	for id := range samples {
		if id%2 == 1 {
			odd = append(odd, id)
		} else {
			even = append(even, id)
		}
	}
	holds := func(want ...[]int) {
		t.Helper()
		all := slices.Concat(want...)
		if !slices.EqualFunc(s.Held(), all, func(a int32, b int) bool { return int(a) == b }) {
			t.Fatalf("holds %d samples, want %d", len(s.Held()), len(all))
		}
		if _, used := s.Capacity(); used != int64(10*len(all)) {
			t.Errorf("%d bytes are in use", used)
		}
		for i := 0; i < len(all); i += 997 {
			if dst := make([]byte, 10); s.Read(all[i], dst) != nil ||
				!bytes.Equal(dst, storetest.Bytes(ds, all[i])) {
				t.Errorf("sample %d has other bytes", all[i])
			}
		}
	}
	storetest.Put(t, s, ds, even...)
	storetest.Put(t, s, ds, odd...)
	before := d.writes.Load()
	s.Drop(even...)
	if n := d.writes.Load() - before; n > 3 {
		t.Errorf("%d writes to the index", n)
	}
	holds(odd)
	storetest.Put(t, s, ds, even...)
	holds(odd, even)
	storetest.Close(t, s)
	s = storetest.Open(t, class, ds, samples*10)
	holds(odd, even)
	storetest.Close(t, s, class)
}
