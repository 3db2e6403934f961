package file_test

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/storageclass/storageclasstest"
)

// TestIndexThatCannotBeReadIsKept checks that a store whose index cannot be read is an error, and
// does not begin without samples.
func TestIndexThatCannotBeReadIsKept(t *testing.T) {
	c, d, _ := faultyClass(t, t.TempDir())
	ds := storageclasstest.Uniform(1, 10, 100)
	s := storageclasstest.Open(t, c, ds, 1000)
	storageclasstest.Put(t, s, ds, 3, 5)
	storageclasstest.Close(t, s)
	d.set(on("read", "index", unix.EIO))
	if _, err := c.Open(ds, 1000); !errors.Is(err, unix.EIO) {
		t.Errorf("opened: %v", err)
	}
	d.set(nil)
	s = storageclasstest.Open(t, c, ds, 1000)
	storageclasstest.Check(t, s, ds, 3, 5)
	storageclasstest.Close(t, s, c)
}

// TestFilesThatCannotBeEmptied checks that no store begins in files that may have something else.
func TestFilesThatCannotBeEmptied(t *testing.T) {
	for _, name := range []string{"index", "data"} {
		c, d, _ := faultyClass(t, t.TempDir())
		d.set(on("truncate", name, unix.EIO))
		if _, err := c.Open(storageclasstest.Uniform(1, 10, 100), 1000); !errors.Is(err, unix.EIO) {
			t.Errorf("%s cannot be emptied: %v", name, err)
		}
		d.set(nil)
		storageclasstest.Close(t, c)
	}
}

// TestDropIsWrittenAtOnce checks that the index says that a sample is dropped before its bytes may
// be used again.
func TestDropIsWrittenAtOnce(t *testing.T) {
	c, d := watchedClass(t)
	ds := storageclasstest.Uniform(1, 10, 100)
	s := storageclasstest.Open(t, c, ds, 1000)
	storageclasstest.Put(t, s, ds, 3)
	before := d.writes.Load()
	if s.Drop(3); d.writes.Load() == before {
		t.Error("the index is as before")
	}
	storageclasstest.Close(t, s, c)
}
