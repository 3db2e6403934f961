package file_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/store/file"
	"github.com/hdmlp/hdmlp/internal/store/file/disk"
	"github.com/hdmlp/hdmlp/internal/store/storetest"
)

// faulty is a disk that injects errors. A write that fails has written the first half.
type faulty struct {
	disk.Disk
	mu sync.Mutex
	// called before every operation, with mu held; nil: no operation fails
	fail func(op, name string) error
}

func newFaulty() *faulty { return &faulty{Disk: bigDisk} }

func (d *faulty) set(fail func(op, name string) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail = fail
}

func (d *faulty) ask(op, name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail == nil {
		return nil
	}
	return d.fail(op, name)
}

func (d *faulty) Open(dir int, name, path string, flags int) (disk.File, error) {
	if err := d.ask("open", name); err != nil {
		return nil, err
	}
	f, err := d.Disk.Open(dir, name, path, flags)
	if err != nil {
		return nil, err
	}
	return &faultyFile{f, d, name}, nil
}

func (d *faulty) Rename(dir int, from, to string) error {
	if err := d.ask("rename", from); err != nil {
		return err
	}
	return d.Disk.Rename(dir, from, to)
}

func (d *faulty) Remove(dir int, name string) error {
	if err := d.ask("remove", name); err != nil {
		return err
	}
	return d.Disk.Remove(dir, name)
}

func (d *faulty) Mkdir(dir int, name string) error {
	if err := d.ask("mkdir", name); err != nil {
		return err
	}
	return d.Disk.Mkdir(dir, name)
}

func (d *faulty) Sync(dir int) error {
	if err := d.ask("sync", ""); err != nil {
		return err
	}
	return d.Disk.Sync(dir)
}

func (d *faulty) Free(dir int) (free, total int64, err error) {
	if err := d.ask("free", ""); err != nil {
		return 0, 0, err
	}
	return d.Disk.Free(dir)
}

type faultyFile struct {
	disk.File
	disk *faulty
	name string
}

func (f *faultyFile) Read(b []byte) (int, error) {
	if err := f.disk.ask("read", f.name); err != nil {
		return 0, err
	}
	return f.File.Read(b)
}

func (f *faultyFile) ReadAt(b []byte, off int64) (int, error) {
	if err := f.disk.ask("read", f.name); err != nil {
		return 0, err
	}
	return f.File.ReadAt(b, off)
}

func (f *faultyFile) Write(b []byte) (int, error) {
	if err := f.disk.ask("write", f.name); err != nil {
		n, _ := f.File.Write(b[:len(b)/2])
		return n, err
	}
	return f.File.Write(b)
}

func (f *faultyFile) WriteAt(b []byte, off int64) (int, error) {
	if err := f.disk.ask("write", f.name); err != nil {
		n, _ := f.File.WriteAt(b[:len(b)/2], off)
		return n, err
	}
	return f.File.WriteAt(b, off)
}

func (f *faultyFile) Truncate(size int64) error {
	if err := f.disk.ask("truncate", f.name); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f *faultyFile) Sync() error {
	if err := f.disk.ask("sync", f.name); err != nil {
		return err
	}
	return f.File.Sync()
}

// on fails one kind of operation on one file.
func on(op, name string, err error) func(string, string) error {
	return func(did, at string) error {
		if did == op && at == name {
			return err
		}
		return nil
	}
}

// faultyClass returns a class on a disk that can fail, and its warnings.
func faultyClass(t *testing.T, dir string) (*file.Class, *faulty, *[]string) {
	t.Helper()
	d, warnings := newFaulty(), new([]string)
	c, err := file.New(file.Options{
		Dir:      dir,
		Capacity: 1 << 20,
		Reserve:  1,
		Disk:     d,
		Warn:     func(m string) { *warnings = append(*warnings, m) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return c, d, warnings
}

// TestUnreadableSampleIsDropped: it counts as corrupt, the other samples stay, and it can be put
// again.
func TestUnreadableSampleIsDropped(t *testing.T) {
	c, d, _ := faultyClass(t, t.TempDir())
	ds := storetest.Uniform(1, 3, 1000)
	s := storetest.Open(t, c, ds, 3000)
	storetest.Put(t, s, ds, 0, 1, 2)
	d.set(on("read", "data", unix.EIO))
	if err := s.Read(1, make([]byte, 1000)); !errors.Is(err, store.ErrCorrupt) ||
		!errors.Is(err, unix.EIO) {
		t.Errorf("got %v", err)
	}
	d.set(nil)
	storetest.Check(t, s, ds, 0, 2)
	storetest.Put(t, s, ds, 1)
	storetest.Check(t, s, ds, 0, 2, 1)
	storetest.Close(t, s, c)
}

// TestTornWriteIsNotHeld: a partly written sample is not held, now or after a restart, and its
// bytes are free.
func TestTornWriteIsNotHeld(t *testing.T) {
	for _, fault := range []error{unix.EIO, unix.ENOSPC} {
		dir := t.TempDir()
		c, d, warnings := faultyClass(t, dir)
		ds := storetest.Uniform(1, 3, 1000)
		s := storetest.Open(t, c, ds, 2000)
		storetest.Put(t, s, ds, 0)
		d.set(on("write", "data", fault))
		err := keep(s, 1, storetest.Bytes(ds, 1))
		if full := fault == unix.ENOSPC; full != errors.Is(err, store.ErrFull) ||
			err == nil || full != (len(*warnings) == 1) {
			t.Errorf("%v: got %v, warned %q", fault, err, *warnings)
		}
		if _, used := s.Capacity(); s.Has(1) || used != 1000 {
			t.Errorf("%v: held: %v, and %d bytes are in use", fault, s.Has(1), used)
		}
		d.set(nil)
		if fault == unix.EIO { // after ENOSPC nothing is put until the store is reopened
			storetest.Put(t, s, ds, 2)
			storetest.Check(t, s, ds, 0, 2)
			storetest.Close(t, s, c)
			continue
		}
		storetest.Check(t, s, ds, 0)
		storetest.Close(t, s)
		s = storetest.Open(t, c, ds, 2000)
		storetest.Put(t, s, ds, 1)
		storetest.Check(t, s, ds, 0, 1)
		storetest.Close(t, s, c)
	}
}

// TestTornIndexIsWrittenAgain: records whose write failed half-way stay pending and are written
// again at the same offset.
func TestTornIndexIsWrittenAgain(t *testing.T) {
	dir := t.TempDir()
	c, d, warnings := faultyClass(t, dir)
	ds := storetest.Uniform(1, 200, 10)
	s := storetest.Open(t, c, ds, 2000)
	d.set(on("write", "index", unix.ENOSPC))
	var ids []int
	for id := range 64 { // the last one writes a batch
		storetest.Put(t, s, ds, id)
		ids = append(ids, id)
	}
	if len(*warnings) != 1 || !strings.Contains((*warnings)[0], unix.ENOSPC.Error()) {
		t.Errorf("warned %q", *warnings)
	}
	if err := keep(s, 100, storetest.Bytes(ds, 100)); !errors.Is(err, store.ErrFull) {
		t.Errorf("after that: %v", err)
	}
	d.set(nil)
	storetest.Close(t, s, c)
	if info, err := os.Stat(path(dir, ds, "index")); err != nil || info.Size() != 64+64*40 {
		t.Errorf("the index has %d bytes, %v", info.Size(), err)
	}
	again := newClass(t, dir, 1<<20)
	s = storetest.Open(t, again, ds, 2000)
	storetest.Check(t, s, ds, ids...)
	storetest.Close(t, s, again)
}

// TestTornIndexKeepsItsWholeRecords: after a restart exactly the samples whose records were written
// completely are held.
func TestTornIndexKeepsItsWholeRecords(t *testing.T) {
	dir := t.TempDir()
	c, d, _ := faultyClass(t, dir)
	ds := storetest.Uniform(1, 200, 10)
	s := storetest.Open(t, c, ds, 2000)
	storetest.Put(t, s, ds, 5, 6, 7)
	d.set(on("write", "index", unix.EIO))
	if err := s.Close(); !errors.Is(err, unix.EIO) {
		t.Errorf("closed: %v", err)
	}
	storetest.Close(t, c)
	again := newClass(t, dir, 1<<20)
	s = storetest.Open(t, again, ds, 2000)
	storetest.Check(t, s, ds, 5) // half of three records is one record and a half
	storetest.Close(t, s, again)
}

// TestEveryFaultLeavesAnIntactCache: whichever operation fails while a cache is created, filled,
// read and reopened, no call returns another sample's bytes, and when the faults end the cache
// works and its samples are intact.
func TestEveryFaultLeavesAnIntactCache(t *testing.T) {
	for _, fault := range []error{unix.EIO, unix.ENOSPC} {
		for at := 0; ; at++ {
			if !faultAt(t, fault, at) {
				if at < 20 {
					t.Errorf("only %d operations", at)
				}
				break
			}
		}
	}
}

// faultAt fails the operation with the given number. It returns false if there were fewer
// operations.
func faultAt(t *testing.T, fault error, at int) (failed bool) {
	t.Helper()
	what, count := "none", 0
	dir, d := t.TempDir(), newFaulty()
	alike := map[string]int{}
	d.fail = func(op, name string) error {
		if alike[op+name]++; alike[op+name] > 10 {
			return nil // the same for one sample after the other
		}
		if count++; count-1 == at {
			what, failed = op+" "+name, true
			return fault
		}
		return nil
	}
	ds := storetest.Uniform(1, 100, 50)
	complain := func(format string, args ...any) {
		t.Errorf("%v at operation %d (%s): %s", fault, at, what, fmt.Sprintf(format, args...))
	}
	read := func(s store.Store) {
		dst := make([]byte, 50)
		for _, id := range s.Held() {
			if err := s.Read(int(id), dst); err == nil &&
				!bytes.Equal(dst, storetest.Bytes(ds, int(id))) {
				complain("sample %d has other bytes", id)
			} else if err != nil && !errors.Is(err, store.ErrCorrupt) {
				complain("sample %d: %v", id, err)
			}
		}
	}
	for range 2 { // the second opens what the first has left
		c, err := file.New(file.Options{Dir: dir, Capacity: 1 << 20, Reserve: 1, Disk: d})
		if err != nil {
			continue
		}
		if s, err := c.Open(ds, 4000); err == nil {
			for id := range 70 {
				_ = keep(s, id, storetest.Bytes(ds, id))
			}
			s.Drop(3)
			read(s)
			_ = s.Close()
		}
		if err := c.Close(); err != nil {
			complain("close: %v", err)
		}
	}
	d.set(nil)
	c, err := file.New(file.Options{Dir: dir, Capacity: 1 << 20, Reserve: 1, Disk: d})
	if err != nil {
		complain("the cache cannot be opened again: %v", err)
		return failed
	}
	s, err := c.Open(ds, 4000)
	if err != nil {
		complain("the store cannot be opened again: %v", err)
		return failed
	}
	read(s)
	if !s.Has(99) {
		if err := keep(s, 99, storetest.Bytes(ds, 99)); err != nil {
			complain("a sample cannot be put: %v", err)
		}
	}
	if err := errors.Join(s.Close(), c.Close()); err != nil {
		complain("%v", err)
	}
	return failed
}

// TestMarkerIsDurableBeforeStores: otherwise a power failure might leave stores with an empty
// marker, or none, and the directory would be refused.
func TestMarkerIsDurableBeforeStores(t *testing.T) {
	d, ds := newFaulty(), storetest.Uniform(1, 3, 1000)
	var done []string
	d.set(func(op, name string) error {
		if op == "sync" || op == "mkdir" || op == "write" && name == "HDMLP-CACHE" {
			done = append(done, op)
		}
		return nil
	})
	c, err := file.New(file.Options{Dir: t.TempDir(), Capacity: 1 << 20, Reserve: 1, Disk: d})
	must(t, err)
	storetest.Close(t, storetest.Open(t, c, ds, 1000), c)
	if got := strings.Join(done, " "); got != "write sync sync mkdir" {
		t.Errorf("got %s", got)
	}
}
