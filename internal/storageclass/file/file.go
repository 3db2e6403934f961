// Package file is the storage class that holds samples on a local disk.
//
// It owns one directory, which it created or found empty, and marked with the
// file HDMLP-CACHE; it refuses any other, and any that other users could have written
// to (directory.go), and deletes nothing but its own files:
//
//	HDMLP-CACHE              marker, locked (flock) while a daemon has the directory
//	<fingerprint>/data       the samples, one behind the other
//	<fingerprint>/index      a journal of what lies where, with checksums
//	<fingerprint>/dataset    what the dataset is (description.go), for people and commands
//
// Commands look at a cache, and clear it, through Existing (existing.go).
//
// The byte layout is in docs/FORMATS.md. What was held is found again after a
// restart, a crash or kill -9: bytes are written before the journal says so, and
// every Read checks the sample's digest, so a sample is right or not held.
// Nothing waits for the disk to have it (fsync): after a power failure samples,
// or a whole store, may be gone or found corrupt, and are read from the source
// again.
//
// A disk that runs full costs speed only: from then on new samples are refused
// with ErrFull, and Warn is told once.
package file

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/config/size"
	"github.com/hdmlp/hdmlp/internal/invariants"
	"github.com/hdmlp/hdmlp/internal/storageclass"
)

var (
	// ErrNotOurs refuses a directory that holds something and lacks the marker.
	ErrNotOurs = errors.New("the directory is not empty and is not a cache of HDMLP")
	// ErrInUse refuses a directory that another process has open.
	ErrInUse = errors.New("the cache directory is in use")
)

const (
	markerName = "HDMLP-CACHE"
	dataName   = "data"
	indexName  = "index"
	newIndex   = "index.new" // an index on its way to become the index

	descriptionName = "dataset"
	newDescription  = "dataset.new" // likewise

	markerVersion = "HDMLP-CACHE 1\n"
	markerText    = markerVersion +
		"HDMLP keeps copies of training samples here. While no hdmlp runs, this\n" +
		"directory may be deleted.\n" +
		"pid "
)

// storeFiles are the files of a store, in the order in which they are removed.
func storeFiles() []string {
	return []string{indexName, newIndex, newDescription, dataName, descriptionName}
}

// Another process may have the marker locked for a moment only, to see whether it is in use (Existing). So a lock that
// cannot be had is tried for again before the directory counts as in use.
const (
	lockAttempts = 20
	lockPause    = 10 * time.Millisecond
)

// checkEvery is how many bytes are written between two looks at the free disk.
const checkEvery = 64 << 20

// Options configure a class.
type Options struct {
	// Dir is the directory; it is made if it is missing.
	Dir string
	// Capacity is how many bytes samples may take in all. 0: what the disk has
	// free, and what the cache has of it already, less Reserve.
	Capacity int64
	// Reserve is how many bytes of the disk are left free. 0: 5 % of the disk,
	// at least 1 GiB.
	Reserve int64
	// Warn is told what a user should know; it must be safe for concurrent use.
	// nil: nobody is told.
	Warn func(message string)
	// Version is hdmlp's, for the descriptions of stores.
	Version string
	// Disk gives the bytes that are free for us on the directory's disk, and all
	// it has. nil: statfs.
	Disk func(dir string) (free, total int64, err error)
}

// Class is the storage class "file".
type Class struct {
	Options
	dir    *directory
	marker *os.File // locked

	full      atomic.Bool  // no new samples
	unchecked atomic.Int64 // bytes written since the free disk was looked at

	mu struct {
		invariants.Mutex[Class]
		open   map[[16]byte]*store
		idle   map[[16]byte]idleStore
		closed bool
	}
}

var _ storageclass.Class = (*Class)(nil)

// idleStore is a store on disk that nobody has open.
type idleStore struct {
	bytes int64     // of its data file
	used  time.Time // when it was last opened
}

// New takes possession of the directory. Errors: ErrNotOurs, ErrInUse,
// *storageclass.LimitError, *storageclass.UnsafeError.
func New(options Options) (*Class, error) {
	c := &Class{Options: options}
	if c.Warn == nil {
		c.Warn = func(string) {}
	}
	if err := c.takeDirectory(); err != nil {
		return nil, c.in(err)
	}
	if c.Disk == nil {
		c.Disk = func(string) (free, total int64, err error) { return c.dir.free() }
	}
	if err := c.measure(); err != nil {
		_ = c.marker.Close()
		_ = c.dir.close()
		return nil, c.in(err)
	}
	return c, nil
}

// in adds to an error which class it is of, unless it says so.
func (c *Class) in(err error) error {
	var notOurs *storageclass.UnsafeError
	if errors.As(err, &notOurs) {
		return fmt.Errorf("file class: %w", err)
	}
	return fmt.Errorf("file class in %s: %w", c.Dir, err)
}

// measure finds the stores that are there, and checks the capacity.
func (c *Class) measure() error {
	stores, err := scan(c.dir)
	if err != nil {
		return err
	}
	c.mu.open = map[[16]byte]*store{}
	c.mu.idle = stores
	_, total, err := c.Disk(c.Dir)
	if err != nil {
		return fmt.Errorf("measure the disk: %w", err)
	}
	if c.Reserve == 0 {
		c.Reserve = max(1<<30, total/20)
	}
	onDisk, err := c.onDisk()
	if err != nil {
		return err
	}
	if c.Capacity == 0 && onDisk <= 0 {
		c.Warn(fmt.Sprintf("nothing can be cached in %s: its disk has not even the %s free that are to be left so",
			c.Dir, size.Format(c.Reserve)))
	}
	if c.Capacity > onDisk {
		return &storageclass.LimitError{
			What: "a cache on the disk of " + c.Dir, Need: c.Capacity, Limit: max(onDisk, 0),
			Hint: fmt.Sprintf("set cache_size to less; %s are left free on the disk (disk_reserve)", size.Format(c.Reserve)),
		}
	}
	return nil
}

// takeDirectory makes, checks, marks and locks the directory.
func (c *Class) takeDirectory() (err error) {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return err
	}
	if c.dir, err = openCache(c.Dir); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = c.dir.close()
		}
	}()
	names, err := c.dir.names()
	if err != nil {
		return err
	}
	marked, other := false, ""
	for _, name := range names {
		switch name {
		case markerName:
			marked = true
		case "lost+found":
		default:
			other = name
		}
	}
	if other != "" && !marked {
		return fmt.Errorf("%w: it holds %q; name a directory that does not exist yet", ErrNotOurs, other)
	}
	marker, err := c.dir.create(markerName, c.dir.path)
	if err != nil {
		return err
	}
	if err := lockMarker(marker, other != ""); err != nil {
		_ = marker.Close()
		return err
	}
	c.marker = marker
	return nil
}

// lockMarker locks the marker, checks what it says, and writes our pid into it.
// An empty one is that of a process which was killed while it made it.
func lockMarker(marker *os.File, others bool) error {
	err := flock(marker, unix.LOCK_EX)
	for attempt := 1; errors.Is(err, unix.EWOULDBLOCK) && attempt < lockAttempts; attempt++ {
		time.Sleep(lockPause)
		err = flock(marker, unix.LOCK_EX)
	}
	text := markerContents(marker)
	n := len(text)
	var st unix.Stat_t
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		return fmt.Errorf("%w by process %s", ErrInUse, markerPID(text))
	case err == nil && unix.Fstat(int(marker.Fd()), &st) == nil && st.Nlink == 0:
		return fmt.Errorf("%w: it was being removed (`hdmlp cache rm`); try again", ErrInUse)
	case err != nil:
		return fmt.Errorf("lock %s: %w", marker.Name(), err)
	case n == 0 && others:
		return fmt.Errorf("%w: %s is empty", ErrNotOurs, markerName)
	case n > 0 && !bytes.HasPrefix(text, []byte(markerVersion)):
		line, _, _ := bytes.Cut(text[:min(n, 80)], []byte("\n"))
		return fmt.Errorf("%w that this version knows: %s says %q, not %q", ErrNotOurs, markerName, line, markerVersion[:len(markerVersion)-1])
	}
	mine := fmt.Appendf(nil, "%s%10d\n", markerText, os.Getpid())
	if _, err := marker.WriteAt(mine, 0); err != nil {
		return err
	}
	return marker.Truncate(int64(len(mine)))
}

// flock locks f or unlocks it, and does not wait.
func flock(f *os.File, how int) error {
	return retry(func() error { return unix.Flock(int(f.Fd()), how|unix.LOCK_NB) })
}

// markerContents reads the marker; of one that is longer than ours are, the beginning.
func markerContents(marker *os.File) []byte {
	text := make([]byte, 4096)
	n, _ := marker.ReadAt(text, 0)
	return text[:n]
}

// markerPID is the process that a marker names, or "unknown".
func markerPID(text []byte) string {
	if _, after, ok := bytes.Cut(text, []byte("\npid ")); ok {
		if pid, err := strconv.Atoi(string(bytes.TrimSpace(after))); err == nil {
			return strconv.Itoa(pid)
		}
	}
	return "unknown"
}

// Held is how many bytes a cache in dir takes on its disk, in use or not; 0 if
// there is none.
func Held(dir string) (int64, error) {
	d, err := openCache(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer d.close() //nolint:errcheck // it was only read
	if _, err := lstat(d.fd, markerName); errors.Is(err, unix.ENOENT) {
		return 0, nil
	}
	stores, err := scan(d)
	if err != nil {
		return 0, err
	}
	var sum int64
	for _, s := range stores {
		sum += s.bytes
	}
	return sum, nil
}

// scan finds the stores in dir, and refuses what in them is not safe.
func scan(dir *directory) (map[[16]byte]idleStore, error) {
	stores := map[[16]byte]idleStore{}
	err := eachStore(dir, func(fingerprint [16]byte, used time.Time, store *directory) error {
		s := idleStore{used: used}
		for _, file := range storeFiles() {
			size, _, err := store.checkEntry(file, unix.S_IFREG, dir.path)
			if err != nil {
				return err
			}
			if file == dataName {
				s.bytes = size
			}
		}
		stores[fingerprint] = s
		return nil
	})
	if err != nil {
		return nil, err
	}
	return stores, nil
}

// eachStore calls do with every store in dir, and when it was last opened.
func eachStore(dir *directory, do func(fingerprint [16]byte, used time.Time, store *directory) error) error {
	names, err := dir.names()
	if err != nil {
		return err
	}
	for _, name := range names {
		var fingerprint [16]byte
		if len(name) != 2*len(fingerprint) {
			continue
		}
		if n, err := hex.Decode(fingerprint[:], []byte(name)); err != nil || n != len(fingerprint) || storeName(fingerprint) != name {
			continue
		}
		_, used, err := dir.checkEntry(name, unix.S_IFDIR, dir.path)
		if err != nil {
			return err
		}
		store, err := dir.openStore(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was evicted meanwhile
		}
		if err != nil {
			return err
		}
		err = do(fingerprint, used, store)
		_ = store.close()
		if err != nil {
			return err
		}
	}
	return nil
}

// Kind is "file".
func (c *Class) Kind() string { return "file" }

// Open is storageclass.Class's. Where a store that is found again holds more
// than room, what came last beyond it is dropped.
func (c *Class) Open(ds storageclass.Dataset, room int64) (storageclass.Store, error) {
	if room < 0 || ds.Samples < 0 || int64(ds.Samples) > math.MaxInt32 {
		return nil, fmt.Errorf("file class: open a store of %d bytes for %d samples: out of range", room, ds.Samples)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed {
		return nil, fmt.Errorf("file class in %s: it is closed", c.Dir)
	}
	if s := c.mu.open[ds.Fingerprint]; s != nil {
		if len(s.where) != ds.Samples {
			return nil, fmt.Errorf("file class: dataset %x has %d samples, its store was made for %d",
				ds.Fingerprint, ds.Samples, len(s.where))
		}
		s.opens++
		return s, nil
	}
	if err := c.makeRoom(ds.Fingerprint, room); err != nil {
		return nil, fmt.Errorf("file class in %s: %w", c.Dir, err)
	}
	s, err := openStore(c, ds, room)
	if err != nil {
		return nil, c.in(fmt.Errorf("open the store of dataset %x: %w", ds.Fingerprint, err))
	}
	delete(c.mu.idle, ds.Fingerprint)
	c.mu.open[ds.Fingerprint] = s
	c.full.Store(false)
	return s, nil
}

// Available is storageclass.Class's.
func (c *Class) Available(ds storageclass.Dataset) (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.mu.open[ds.Fingerprint]; s != nil {
		total, _ := s.Room()
		return total, nil
	}
	n, err := c.unpromised()
	if err != nil {
		return 0, fmt.Errorf("file class in %s: %w", c.Dir, err)
	}
	return max(n, 0), nil
}

// Close gives the directory back; what it holds stays on disk. It is an error,
// and changes nothing, while a store is open.
func (c *Class) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed {
		return nil
	}
	for fingerprint := range c.mu.open {
		return fmt.Errorf("file class in %s: close: the store of dataset %x is open", c.Dir, fingerprint)
	}
	c.mu.closed = true
	return errors.Join(c.marker.Close(), c.dir.close())
}

// onDisk is how many bytes all stores together may take: what the disk has free
// and what they have of it, less the reserve. c.mu is held, or nobody else has c.
func (c *Class) onDisk() (int64, error) {
	n, _, err := c.Disk(c.Dir)
	if err != nil {
		return 0, fmt.Errorf("measure the disk: %w", err)
	}
	for _, s := range c.mu.idle {
		n += s.bytes
	}
	for _, s := range c.mu.open {
		_, used := s.Room()
		n += used
	}
	return n - c.Reserve, nil
}

// unpromised is what a new store could have if all idle stores were evicted.
// It may be negative. c.mu is held.
func (c *Class) unpromised() (int64, error) {
	n, err := c.onDisk()
	if err != nil {
		return 0, err
	}
	if c.Capacity > 0 {
		n = min(n, c.Capacity)
	}
	for _, s := range c.mu.open {
		total, _ := s.Room()
		n -= total
	}
	return n, nil
}

// makeRoom evicts idle stores other than own, the one opened longest ago first,
// until own can have room bytes. c.mu is held.
func (c *Class) makeRoom(own [16]byte, room int64) error {
	limit, err := c.unpromised()
	if err != nil {
		return err
	}
	if room == 0 {
		return nil // nothing always fits, also where the disk has less than its reserve
	}
	if room > limit {
		return &storageclass.LimitError{
			What: "a store on disk", Need: room, Limit: max(limit, 0),
			Hint: "set cache_size to less, or make room on the disk",
		}
	}
	for fingerprint, s := range c.mu.idle {
		if fingerprint != own {
			limit -= s.bytes
		}
	}
	for room > limit {
		var oldest [16]byte
		var found bool
		for fingerprint, s := range c.mu.idle {
			if fingerprint != own && (!found || s.used.Before(c.mu.idle[oldest].used)) {
				oldest, found = fingerprint, true
			}
		}
		if !found { // stores without bytes are left, which cannot be
			return fmt.Errorf("make room for %s: nothing is left to evict", size.Format(room))
		}
		if err := c.dir.removeStore(storeName(oldest)); err != nil {
			return fmt.Errorf("evict the store of dataset %x: %w", oldest, err)
		}
		limit += c.mu.idle[oldest].bytes
		delete(c.mu.idle, oldest)
	}
	return nil
}

// storeName is the name of a store's directory.
func storeName(fingerprint [16]byte) string { return hex.EncodeToString(fingerprint[:]) }

func (c *Class) closeStore(s *store) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.opens == 0 {
		return fmt.Errorf("file class: the store of dataset %x was closed more often than opened", s.fingerprint)
	}
	s.opens--
	if s.opens > 0 {
		return nil
	}
	end, err := s.shut()
	delete(c.mu.open, s.fingerprint)
	c.mu.idle[s.fingerprint] = idleStore{bytes: end, used: s.opened}
	if err != nil {
		return fmt.Errorf("file class: close the store of dataset %x in %s: %w", s.fingerprint, c.Dir, err)
	}
	return nil
}

// wrote counts bytes, and looks at the disk now and then.
func (c *Class) wrote(n int64) {
	if c.unchecked.Add(n) < checkEvery {
		return
	}
	c.unchecked.Store(0)
	if free, _, err := c.Disk(c.Dir); err == nil && free < c.Reserve {
		c.stop(fmt.Sprintf("its disk has %s left of the %s that are to stay free", size.Format(free), size.Format(c.Reserve)))
	}
}

// stop refuses new samples from now on, and says why, once.
func (c *Class) stop(why string) {
	if c.full.CompareAndSwap(false, true) {
		c.Warn(fmt.Sprintf("no more samples are cached in %s: %s", c.Dir, why))
	}
}
