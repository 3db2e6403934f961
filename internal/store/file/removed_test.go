package file_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/store/file"
	"github.com/hdmlp/hdmlp/internal/store/storetest"
)

// TestRemovedDirectoryIsTakenAgain checks that a directory that was removed, or emptied, while no
// store was open is made again, marked and locked, by the next Open or Available.
func TestRemovedDirectoryIsTakenAgain(t *testing.T) {
	ds, other := storetest.Uniform(1, 5, 100), storetest.Uniform(2, 5, 100)
	for name, remove := range map[string]func(dir string) error{
		"removed": os.RemoveAll,
		"emptied": func(dir string) error {
			entries, err := os.ReadDir(dir)
			for _, e := range entries {
				err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
			}
			return err
		},
		"replaced": func(dir string) error {
			return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "cache")
			c := newClass(t, dir, 10_000)
			s := storetest.Open(t, c, ds, 1000)
			storetest.Put(t, s, ds, 0, 1, 2)
			must(t, s.Close(), remove(dir))
			if n, err := c.Available(other); err != nil || n != 10_000 {
				t.Errorf("available: %d, %v", n, err)
			}
			s = storetest.Open(t, c, ds, 1000)
			if held := s.Held(); len(held) != 0 {
				t.Errorf("it holds %v", held)
			}
			storetest.Put(t, s, ds, 3)
			if _, err := file.New(file.Options{Dir: dir, Reserve: 1, Disk: bigDisk}); !errors.Is(err,
				file.ErrInUse) {
				t.Errorf("another class on the directory: %v, want it in use", err)
			}
			storetest.Close(t, s, c)
			again := newClass(t, dir, 10_000)
			s = storetest.Open(t, again, ds, 1000)
			if held := s.Held(); len(held) != 1 || held[0] != 3 {
				t.Errorf("after a restart it holds %v", held)
			}
			storetest.Close(t, s, again)
		})
	}
}

// TestDirectoryRemovedWhileInUse checks that another dataset is refused, with what to do, while a
// store in what was the directory is open, and not after that.
func TestDirectoryRemovedWhileInUse(t *testing.T) {
	ds, other := storetest.Uniform(1, 5, 100), storetest.Uniform(2, 5, 100)
	dir := filepath.Join(t.TempDir(), "cache")
	c := newClass(t, dir, 10_000)
	s := storetest.Open(t, c, ds, 1000)
	must(t, os.RemoveAll(dir))
	_, err := c.Open(other, 1000)
	if err == nil || !strings.Contains(err.Error(), dir+" was removed") ||
		!strings.Contains(err.Error(), "end that job first") {
		t.Errorf("while a store is open: %v", err)
	}
	if n, err := c.Available(other); err == nil {
		t.Errorf("while a store is open: %d bytes are available in a directory that is gone", n)
	}
	var same store.Store
	if same, err = c.Open(ds, 1000); err != nil {
		t.Errorf("the store that is open cannot be joined: %v", err)
	}
	must(t, same.Close(), s.Close())
	s = storetest.Open(t, c, other, 1000)
	storetest.Close(t, s, c)
}

// TestReadNow checks that what was just written is read without waiting for the disk, and that a
// corrupt copy is left to Read, which drops it.
func TestReadNow(t *testing.T) {
	ds := storetest.Uniform(1, 5, 5000)
	dir := filepath.Join(t.TempDir(), "cache")
	c, err := file.New(file.Options{Dir: dir, Capacity: 100_000, Reserve: 1})
	must(t, err)
	s := storetest.Open(t, c, ds, 25_000)
	storetest.Put(t, s, ds, 0, 1)
	now := s.(store.Prompt)
	got := make([]byte, 5000)
	want := make([]byte, 5000)
	must(t, s.Read(1, want))
	switch err := now.ReadNow(1, got); {
	case errors.Is(err, store.ErrWait):
		t.Log("the file system cannot read without waiting")
	case err != nil || string(got) != string(want):
		t.Errorf("other bytes than by Read: %v", err)
	}
	if err := now.ReadNow(3, got); !errors.Is(err, store.ErrWait) {
		t.Errorf("a sample that is not held: %v", err)
	}
	data, err := filepath.Glob(filepath.Join(dir, "*", "data"))
	must(t, err)
	must(t, os.WriteFile(data[0], make([]byte, 10_000), 0o600))
	if err := now.ReadNow(1, got); !errors.Is(err, store.ErrWait) || !s.Has(1) {
		t.Errorf("a corrupt copy: %v, held: %t", err, s.Has(1))
	}
	if err := s.Read(1, got); !errors.Is(err, store.ErrCorrupt) || s.Has(1) {
		t.Errorf("a corrupt copy, by Read: %v, held: %t", err, s.Has(1))
	}
	storetest.Close(t, s, c)
}
