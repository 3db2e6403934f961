// Package file is the storage class that holds samples on a local disk.
//
// It owns one directory, which it created or found empty, and which it marked with the file
// HDMLP-CACHE. It refuses any other directory, and any to which other users could have written
// (package disk), and deletes only its own files:
//
//	HDMLP-CACHE              marker, locked (flock) while a daemon has the directory open
//	<fingerprint>/data       the samples, one after the other
//	<fingerprint>/index      a journal of the samples' locations, with checksums
//	<fingerprint>/dataset    a description of the dataset (description.go), for people and commands
//	<fingerprint>/list       the list of its records, if a process gave one (list.go), for commands
//
// Commands inspect a cache, and clear it, through Existing (existing.go).
//
// The byte layout is in docs/FORMATS.md. Samples are found again after a restart, a crash or kill
// -9: a sample's bytes are written before its journal record, and every Read verifies the sample's
// digest, so a sample is either intact or not held. Only the marker is synced to the disk (fsync),
// when it is created, and the removal of stores, before the marker is removed. After a power
// failure samples, or a whole store, may be missing or corrupt, and are read from the source again;
// files may even show those of a store that was removed, whose records have other checksums.
//
// A disk that is full, read-only, or fails one write after the other costs only speed: from then on
// new samples are refused with ErrFull, and Warn is called once.
//
// layout.go is the layout of a store's index file: a header, followed by records in chronological
// order, of which the last one of a sample applies.
package file

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/lib/invariants"
	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/store/file/disk"
)

var (
	// ErrNotOurs refuses a directory that is not empty and has no marker.
	ErrNotOurs = errors.New("the directory is not empty and is not an HDMLP cache")
	// ErrInUse refuses a directory that another process has open.
	ErrInUse = errors.New("the cache directory is in use")
)

const (
	markerName = "HDMLP-CACHE"
	dataName   = "data"
	indexName  = "index"
	newIndex   = "index.new" // renamed to indexName when complete

	descriptionName = "dataset"
	newDescription  = "dataset.new" // renamed to descriptionName when complete

	listName = "list"
	newList  = "list.new" // renamed to listName when complete

	markerVersion = "HDMLP-CACHE 1\n"
	markerText    = markerVersion +
		"HDMLP keeps copies of training samples here. While no hdmlp runs, this\n" +
		"directory may be deleted.\n" +
		"pid "
)

// Options configure a class.
type Options struct {
	// Dir is the directory; it is created if it is missing.
	Dir string
	// Capacity is how many bytes samples may take in total. 0: what the disk has free, plus what
	// the cache already takes, minus Reserve.
	Capacity int64
	// Reserve is how many bytes of the disk to leave free. 0: 5 % of the disk,
	// at least 1 GiB.
	Reserve int64
	// Warn reports what a user should know; it must be safe for concurrent use. nil: not called.
	Warn func(message string)
	// Version is hdmlp's version, for the descriptions of stores.
	Version string
	// Disk performs the file operations; nil: the operating system.
	Disk disk.Disk
}

// Class is the storage class "file".
type Class struct {
	Options
	dir    *disk.Directory
	marker disk.File // locked

	stopped   atomic.Pointer[string] // why new samples are refused; nil: they are not
	failed    atomic.Int32           // writes of samples that failed since one succeeded
	unchecked atomic.Int64           // bytes written since the free space was checked

	mu struct { // guards the following
		invariants.Mutex[Class]
		open   map[[16]byte]*classStore
		idle   map[[16]byte]idleStore
		closed bool
	}
}

var _ store.Class = (*Class)(nil)

// New opens and locks the directory, which it creates if it is missing. Errors: ErrNotOurs,
// ErrInUse,
// *store.LimitError, *store.UnsafeError.
func New(options Options) (*Class, error) {
	c := &Class{Options: options}
	if c.Warn == nil {
		c.Warn = func(string) {}
	}
	if c.Disk == nil {
		c.Disk = disk.System{}
	}
	if err := c.take(); err != nil {
		return nil, err
	}
	return c, nil
}

// take opens and locks the directory, and finds what it holds. c.mu is held, or c is not shared
// yet.
func (c *Class) take() error {
	if err := c.takeDirectory(); err != nil {
		return c.in(err)
	}
	if err := c.measure(); err != nil {
		_ = c.marker.Close()
		_ = c.dir.Close()
		return c.in(err)
	}
	return nil
}

// renew takes the directory again if it was removed, or emptied, while no store was open: its
// marker is then gone. c.mu is held.
func (c *Class) renew() error {
	if c.dir.Is(markerName, c.marker) {
		return nil
	}
	if len(c.mu.open) > 0 {
		return fmt.Errorf("%w: %s was removed, and a running job still uses what was in it: end "+
			"that job first, or choose another directory", ErrInUse, c.Dir)
	}
	was := *c.dir
	marker := c.marker
	if err := c.take(); err != nil {
		c.dir, c.marker = &was, marker // so that the next job tries again
		return err
	}
	_ = marker.Close()
	return was.Close()
}

// in adds the class's directory to an error, unless the error names it.
func (c *Class) in(err error) error {
	var notOurs *store.UnsafeError
	if errors.As(err, &notOurs) {
		return fmt.Errorf("file class: %w", err)
	}
	return fmt.Errorf("file class in %s: %w", c.Dir, err)
}

// measure finds the existing stores, and checks the capacity. c.mu is held, or c is not shared yet.
func (c *Class) measure() error {
	stores, err := scan(c.dir)
	if err != nil {
		return err
	}
	c.mu.open = map[[16]byte]*classStore{}
	c.mu.idle = stores
	_, total, err := c.dir.Free()
	if err != nil {
		return fmt.Errorf("measure the disk: %w", err)
	}
	if c.Reserve == 0 {
		c.Reserve = reserve(total)
	}
	onDisk, err := c.onDisk()
	if err != nil {
		return err
	}
	if c.Capacity == 0 && onDisk <= 0 {
		c.Warn(fmt.Sprintf("nothing can be cached in %s: its disk has less free space than the %s "+
			"to leave free (disk_reserve)", c.Dir, human.Format(c.Reserve)))
	}
	if c.Capacity > max(onDisk, 0) {
		return &store.LimitError{
			What: "a cache on the disk of " + c.Dir, Need: c.Capacity, Limit: max(onDisk, 0),
			Hint: c.hint(),
		}
	}
	return nil
}

// hint returns what to do about a capacity that the disk does not have.
func (c *Class) hint() string {
	return fmt.Sprintf("reduce the capacity (cache_size, or that of its [[storage_class]]), or "+
		"disk_reserve, by which %s of the disk are left free, or free space on it",
		human.Format(c.Reserve))
}

// Kind returns the kind's name.
func (c *Class) Kind() string { return Name }

// Open implements store.Class. If a store that is reopened holds more than capacity, its
// newest samples are dropped.
func (c *Class) Open(ds store.Dataset, capacity int64) (store.Store, error) {
	if capacity < 0 || ds.Samples < 0 || int64(ds.Samples) > math.MaxInt32 {
		return nil, fmt.Errorf("file class: open a store of %d bytes for %d samples: out of range",
			capacity, ds.Samples)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed {
		return nil, fmt.Errorf("file class in %s: the class is closed", c.Dir)
	}
	if s := c.mu.open[ds.Fingerprint]; s != nil {
		if len(s.where) != ds.Samples {
			return nil,
				fmt.Errorf("file class: dataset %x has %d samples, its store was created for %d",
					ds.Fingerprint, ds.Samples, len(s.where))
		}
		s.opens++
		return s, nil
	}
	if err := c.renew(); err != nil {
		return nil, err
	}
	if err := c.makeRoom(ds.Fingerprint, capacity); err != nil {
		return nil, fmt.Errorf("file class in %s: %w", c.Dir, err)
	}
	s, err := openStore(c, ds, capacity)
	if err != nil {
		return nil, c.in(fmt.Errorf("open the store of dataset %x: %w", ds.Fingerprint, err))
	}
	delete(c.mu.idle, ds.Fingerprint)
	c.mu.open[ds.Fingerprint] = s
	c.stopped.Store(nil)
	c.failed.Store(0)
	return s, nil
}

// Available implements store.Class.
func (c *Class) Available(ds store.Dataset) (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.mu.open[ds.Fingerprint]; s != nil {
		return s.promised(), nil
	}
	if err := c.renew(); err != nil {
		return 0, err
	}
	n, err := c.unpromised()
	if err != nil {
		return 0, fmt.Errorf("file class in %s: %w", c.Dir, err)
	}
	return max(n, 0), nil
}

// Close releases the directory; its contents stay on disk. If a store is open it returns an error
// and changes nothing.
func (c *Class) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed {
		return nil
	}
	for fingerprint := range c.mu.open {
		return fmt.Errorf("file class in %s: close: the store of dataset %x is open", c.Dir,
			fingerprint)
	}
	c.mu.closed = true
	return errors.Join(c.marker.Close(), c.dir.Close())
}

func (c *Class) closeStore(s *classStore) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.opens == 0 {
		return fmt.Errorf("file class: the store of dataset %x was closed more often than opened",
			s.fingerprint)
	}
	s.opens--
	if s.opens > 0 {
		return nil
	}
	end, err := s.shut()
	delete(c.mu.open, s.fingerprint)
	c.mu.idle[s.fingerprint] = idleStore{bytes: end, used: s.opened}
	if err != nil {
		return fmt.Errorf("file class: close the store of dataset %x in %s: %w", s.fingerprint,
			c.Dir, err)
	}
	return nil
}
