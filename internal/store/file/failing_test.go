package file_test

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/store/storetest"
)

// TestDiskThatFailsAllWritesStopsCaching checks that nothing more is written to a disk that is
// read-only, or fails one write after the other, of which the user is warned once; and that writes
// that fail between others do not matter.
func TestDiskThatFailsAllWritesStopsCaching(t *testing.T) {
	for fault, most := range map[error]int{unix.EROFS: 1, unix.EIO: 8, unix.ENXIO: 8} {
		c, d, warnings := faultyClass(t, t.TempDir())
		ds := storetest.Uniform(1, 100, 100)
		s := storetest.Open(t, c, ds, 10000)
		writes, fails := 0, false
		d.set(func(op, name string) error {
			if op != "write" || name != "data" {
				return nil
			}
			if writes++; fails {
				return fault
			}
			return nil
		})
		refuses := func() string { return s.(store.Refuser).Refuses() }
		var held []int
		for id := range 40 {
			fails = most > 1 && id%4 > 0
			if keep(s, id, storetest.Bytes(ds, id)) == nil {
				held = append(held, id)
			}
		}
		if writes != 40 || len(*warnings) > 0 || refuses() != "" {
			t.Errorf("%v: %d writes, warned %q, refuses %q", fault, writes, *warnings, refuses())
		}
		fails = false
		storetest.Put(t, s, ds, 40)
		writes = 0
		fails = true
		held = append(held, 40)
		var last error
		for id := 41; id < 80; id++ {
			last = keep(s, id, storetest.Bytes(ds, id))
		}
		if writes != most || !errors.Is(last, store.ErrFull) || len(*warnings) != 1 ||
			!strings.Contains((*warnings)[0], "no more samples are cached") ||
			!strings.Contains((*warnings)[0], fault.Error()) ||
			!strings.Contains(refuses(), fault.Error()) {
			t.Errorf("%v: %d writes, %v, warned %q, refuses %q", fault, writes, last, *warnings,
				refuses())
		}
		storetest.Check(t, s, ds, held...)
		d.set(nil)
		storetest.Close(t, s)
		s = storetest.Open(t, c, ds, 10000) // the next job tries again
		storetest.Put(t, s, ds, 50)
		if refuses() != "" {
			t.Errorf("%v: opened again, it refuses %q", fault, refuses())
		}
		storetest.Close(t, s, c)
	}
}
