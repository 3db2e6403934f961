// Package faultdisk is a disk with faults, over a real directory: operations fail, it is full,
// reads or writes hang, bits flip, and a crash loses or tears what was written last.
//
// All methods are safe for concurrent use. What hangs waits for the fault's end.
package faultdisk

import (
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/store/file/disk"
)

const (
	volume  = 1 << 30 // the size of a disk
	lasting = 64      // writes of a file that a crash may lose; older ones are on the disk
	// marker is the file that makes a directory HDMLP's own. HDMLP refuses a directory whose marker
	// is damaged, so that rot spares it.
	marker = "HDMLP-CACHE"
)

// Faults are what operations suffer. The zero value is none.
type Faults struct {
	Fail float64 // the share of operations that fail with EIO
	Full bool    // no bytes can be added
	// If not nil, reads and writes return once these are closed.
	Hang, HangWrites chan struct{}
}

// Disk is the disk of one node.
type Disk struct {
	disk.System

	mu     sync.Mutex // guards the following
	random *rand.Rand
	faults Faults
	files  map[string][]write // by path: the last writes
	open   int                // files
}

// write is what a write replaced.
type write struct {
	offset int64
	before []byte
	after  int
}

// New returns a disk without faults.
func New(seed uint64) *Disk {
	return &Disk{random: rand.New(rand.NewPCG(seed, 2)), files: map[string][]write{}}
}

// Files returns how many files are open.
func (d *Disk) Files() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.open
}

// Fault has change set what operations suffer from now on.
func (d *Disk) Fault(change func(*Faults)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(&d.faults)
}

// fault returns the error of an operation, after it has hung.
func (d *Disk) fault(reads, adds bool) error {
	d.mu.Lock()
	f := d.faults
	fails := f.Fail > 0 && d.random.Float64() < f.Fail
	d.mu.Unlock()
	if reads && f.Hang != nil {
		<-f.Hang
	}
	if adds && f.HangWrites != nil {
		<-f.HangWrites
	}
	switch {
	case fails:
		return unix.EIO
	case adds && f.Full:
		return unix.ENOSPC
	}
	return nil
}

// Crash loses some of the last writes of each file, and tears others, as a loss of power does. No
// file may be open.
func (d *Disk) Crash() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, path := range d.paths() {
		if err := d.crash(path); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	clear(d.files)
	return nil
}

// paths returns the files in order, so that chance has the same effect in each run.
func (d *Disk) paths() (paths []string) {
	for path := range d.files {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	return paths
}

func (d *Disk) crash(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // what matters is written or not by chance
	for _, w := range slices.Backward(d.files[path]) {
		keep := 0
		switch d.random.IntN(3) {
		case 0:
			continue
		case 1:
			keep = d.random.IntN(w.after + 1)
		}
		lost := make([]byte, w.after)
		copy(lost, w.before)
		if _, err := f.WriteAt(lost[keep:], w.offset+int64(keep)); err != nil {
			return err
		}
	}
	return nil
}

// Rot flips bits of the files.
func (d *Disk) Rot(bits int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	paths := slices.DeleteFunc(d.paths(), func(path string) bool {
		return filepath.Base(path) == marker
	})
	for range bits {
		if len(paths) == 0 {
			return nil
		}
		if err := d.flip(paths[d.random.IntN(len(paths))]); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return nil
}

func (d *Disk) flip(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it is a fault
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	b, at := make([]byte, 1), d.random.Int64N(info.Size())
	if _, err := f.ReadAt(b, at); err != nil {
		return err
	}
	b[0] ^= 1 << d.random.IntN(8)
	_, err = f.WriteAt(b, at)
	return err
}

// Open implements disk.Disk.
func (d *Disk) Open(dir int, name, path string, flags int) (disk.File, error) {
	if err := d.fault(false, false); err != nil {
		return nil, err
	}
	f, err := d.System.Open(dir, name, path, flags)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, known := d.files[path]; !known {
		d.files[path] = nil
	}
	d.open++
	return &file{f, d}, nil
}

// Close implements disk.File.
func (f *file) Close() error {
	err := f.File.Close()
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if err == nil {
		f.disk.open--
	}
	return err
}

// Rename implements disk.Disk.
func (d *Disk) Rename(dir int, from, to string) error {
	if err := d.fault(false, false); err != nil {
		return err
	}
	if err := d.System.Rename(dir, from, to); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, path := range d.paths() { // names are unique within a store, and stores few
		if filepath.Base(path) == from {
			d.files[filepath.Join(filepath.Dir(path), to)] = d.files[path]
			delete(d.files, path)
		}
	}
	return nil
}

// Remove implements disk.Disk.
func (d *Disk) Remove(dir int, name string) error {
	if err := d.fault(false, false); err != nil {
		return err
	}
	return d.System.Remove(dir, name)
}

// Free implements disk.Disk.
func (d *Disk) Free(int) (free, total int64, err error) {
	if err := d.fault(false, false); err != nil {
		return 0, 0, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.faults.Full {
		return 0, volume, nil
	}
	return volume / 2, volume, nil
}

// file is an open file. Unlike those of the system it always waits for the disk.
type file struct {
	disk.File
	disk *Disk
}

func (f *file) Read(b []byte) (int, error) {
	if err := f.disk.fault(true, false); err != nil {
		return 0, err
	}
	return f.File.Read(b)
}

func (f *file) ReadAt(b []byte, offset int64) (int, error) {
	if err := f.disk.fault(true, false); err != nil {
		return 0, err
	}
	return f.File.ReadAt(b, offset)
}

func (f *file) Write(b []byte) (int, error) {
	if err := f.disk.fault(false, true); err != nil {
		n, _ := f.File.Write(b[:len(b)/2])
		return n, err
	}
	return f.File.Write(b)
}

func (f *file) WriteAt(b []byte, offset int64) (int, error) {
	before := make([]byte, len(b))
	n, err := f.File.ReadAt(before, offset)
	if err != nil && err != io.EOF {
		return 0, err
	}
	d := f.disk
	d.mu.Lock()
	last := append(d.files[f.Name()], write{offset, before[:n], len(b)})
	d.files[f.Name()] = last[max(0, len(last)-lasting):]
	d.mu.Unlock()
	if err := d.fault(false, true); err != nil {
		n, _ := f.File.WriteAt(b[:len(b)/2], offset)
		return n, err
	}
	return f.File.WriteAt(b, offset)
}

// Sync implements disk.File: what was written is not lost any more.
func (f *file) Sync() error {
	if err := f.disk.fault(false, false); err != nil {
		return err
	}
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	f.disk.files[f.Name()] = nil
	return nil
}

func (f *file) Truncate(size int64) error {
	if err := f.disk.fault(false, false); err != nil {
		return err
	}
	return f.File.Truncate(size)
}
