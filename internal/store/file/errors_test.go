package file_test

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/store/storetest"
)

// TestIndexThatCannotBeReadIsKept checks that a store whose index cannot be read is an error, and
// does not begin without samples.
func TestIndexThatCannotBeReadIsKept(t *testing.T) {
	c, d, _ := faultyClass(t, t.TempDir())
	ds := storetest.Uniform(1, 10, 100)
	s := storetest.Open(t, c, ds, 1000)
	storetest.Put(t, s, ds, 3, 5)
	storetest.Close(t, s)
	d.set(on("read", "index", unix.EIO))
	if _, err := c.Open(ds, 1000); !errors.Is(err, unix.EIO) {
		t.Errorf("opened: %v", err)
	}
	d.set(nil)
	s = storetest.Open(t, c, ds, 1000)
	storetest.Check(t, s, ds, 3, 5)
	storetest.Close(t, s, c)
}

// TestFilesThatCannotBeEmptied checks that no store begins in files that may have something else.
func TestFilesThatCannotBeEmptied(t *testing.T) {
	for _, name := range []string{"index", "data"} {
		c, d, _ := faultyClass(t, t.TempDir())
		d.set(on("truncate", name, unix.EIO))
		if _, err := c.Open(storetest.Uniform(1, 10, 100), 1000); !errors.Is(err, unix.EIO) {
			t.Errorf("%s cannot be emptied: %v", name, err)
		}
		d.set(nil)
		storetest.Close(t, c)
	}
}

// TestDropIsWrittenAtOnce checks that the index records that a sample is dropped before its bytes
// may be used again.
func TestDropIsWrittenAtOnce(t *testing.T) {
	c, d := watchedClass(t)
	ds := storetest.Uniform(1, 10, 100)
	s := storetest.Open(t, c, ds, 1000)
	storetest.Put(t, s, ds, 3)
	before := d.writes.Load()
	if s.Drop(3); d.writes.Load() == before {
		t.Error("the index is as before")
	}
	storetest.Close(t, s, c)
}
