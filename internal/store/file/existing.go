package file

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/lib/digest"
	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/store/file/disk"
)

var (
	// ErrNoCache refuses a directory that is not a cache, or is one of another version.
	ErrNoCache = errors.New("the directory is not an HDMLP cache")
	// ErrIndex reports that a store's index is damaged, or belongs to another version or dataset:
	// the store holds nothing, and the next job that opens it recreates it.
	ErrIndex = errors.New("the store's index is damaged or of another version of hdmlp; its " +
		"samples are not used")
)

// Cache is an existing cache directory, for commands that inspect or clear it. Only Lock, which
// writes the process's ID into the marker, Drop, Remove and RemoveMarker change it; the last three
// need the lock. It is not safe for concurrent use.
type Cache struct {
	dir    *disk.Directory
	marker disk.File // locked; nil if the cache is only read
}

// Existing opens a cache. Errors: fs.ErrNotExist, ErrNoCache, *store.UnsafeError.
func Existing(path string) (*Cache, error) { return existing(disk.System{}, path) }

func existing(d disk.Disk, path string) (*Cache, error) {
	dir, err := disk.OpenCache(d, path)
	if err != nil {
		return nil, err
	}
	c := &Cache{dir: dir}
	if _, err := c.look(); err != nil {
		_ = dir.Close()
		return nil, err
	}
	return c, nil
}

// look reads the marker, and returns the ID of the process that has the directory open, UnknownPID
// if the marker has none, or "" if no process has it.
func (c *Cache) look() (pid string, err error) {
	marker, err := c.dir.Open(markerName, unix.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%s: %w: it has no file %s", c.dir.Path(), ErrNoCache, markerName)
	}
	if err != nil {
		return "", err
	}
	defer marker.Close() //nolint:errcheck // it was only read
	text := disk.Head(marker)
	if !bytes.HasPrefix(text, []byte(markerVersion)) {
		line, _, _ := bytes.Cut(text[:min(len(text), 80)], []byte("\n"))
		return "", fmt.Errorf("%s: %w of this version: %s contains %q, not %q", c.dir.Path(),
			ErrNoCache, markerName, line, strings.TrimSpace(markerVersion))
	}
	err = disk.Flock(marker, unix.LOCK_SH) // briefly; lockMarker retries
	if errors.Is(err, unix.EWOULDBLOCK) {
		return markerPID(text), nil
	}
	return "", err
}

// User returns the ID of the process that has the cache open, UnknownPID if the marker has none,
// or "" if no process has it.
func (c *Cache) User() (pid string, err error) {
	if c.marker != nil {
		return "", nil // this process has it
	}
	return c.look()
}

// Lock keeps daemons out until Close. It returns ErrInUse if a process has the directory open.
func (c *Cache) Lock() error {
	marker, err := c.dir.Open(markerName, unix.O_RDWR)
	if err != nil {
		return err
	}
	if err := lockMarker(marker, true); err != nil {
		_ = marker.Close()
		return fmt.Errorf("%s: %w", c.dir.Path(), err)
	}
	c.marker = marker
	return nil
}

// Close releases the directory.
func (c *Cache) Close() error {
	var err error
	if c.marker != nil {
		err = c.marker.Close()
	}
	return errors.Join(err, c.dir.Close())
}

// StoreInfo describes a store. Its samples are counted by the index alone.
type StoreInfo struct {
	Fingerprint [16]byte
	Used        time.Time    // when it was last opened
	Samples     int          // of the dataset; -1: not known
	Held        int          // samples
	HeldBytes   int64        // of these samples
	Description *Description // nil if there is none, or it cannot be used
	Problem     error        // why the index or the description cannot be used
}

// Stores lists the stores, the one opened last first.
func (c *Cache) Stores() ([]StoreInfo, error) {
	var stores []StoreInfo
	err := eachStore(c.dir, func(fingerprint [16]byte, used time.Time, dir *disk.Directory) error {
		s := StoreInfo{Fingerprint: fingerprint, Used: used, Samples: -1}
		for _, file := range storeFiles() {
			if _, err := dir.CheckFile(file); err != nil {
				return err
			}
		}
		var err error
		if s.Description, err = readDescription(dir); err != nil {
			s.Problem = err
		} else if s.Description != nil {
			s.Samples = int(s.Description.Samples)
		}
		if err := s.count(dir); err != nil {
			s.Problem = errors.Join(err, s.Problem)
		}
		stores = append(stores, s)
		return nil
	})
	slices.SortFunc(stores, func(a, b StoreInfo) int {
		if d := b.Used.Compare(a.Used); d != 0 {
			return d
		}
		return bytes.Compare(a.Fingerprint[:], b.Fingerprint[:])
	})
	return stores, err
}

// count counts the samples that are held according to the index.
func (s *StoreInfo) count(dir *disk.Directory) error {
	data, size, err := openData(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return ErrIndex
	}
	if err != nil {
		return err
	}
	_ = data.Close()
	index, err := dir.Open(indexName, unix.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return ErrIndex
	}
	if err != nil {
		return err
	}
	defer index.Close() //nolint:errcheck // it was only read
	header := make([]byte, HeaderSize)
	if _, err := index.ReadAt(header, 0); err != nil {
		return ErrIndex
	}
	fingerprint, samples, ok := ParseHeader(header)
	if !ok || fingerprint != s.Fingerprint {
		return ErrIndex
	}
	lengths := map[uint32]uint64{} // by ID; at most one entry per record of the index
	_, _, err = Read(index, fingerprint, samples, func(r Record) {
		delete(lengths, r.ID)
		if uint64(r.ID) < uint64(samples) && r.Length != Dropped && r.Offset <= uint64(size) &&
			r.Length <= uint64(size)-r.Offset {
			lengths[r.ID] = r.Length
		}
	})
	s.Samples, s.Held = samples, len(lengths)
	for _, n := range lengths {
		s.HeldBytes += int64(n)
	}
	return err
}

func openData(dir *disk.Directory) (disk.File, int64, error) {
	f, err := dir.Open(dataName, unix.O_RDONLY)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}

// Contents are the samples of a store, for comparison. Its methods may be called in parallel,
// except Close.
type Contents struct {
	// Restore returns the sample of a form; nil: forms are compared by their own digests alone.
	Restore func(form []byte, kind uint8) (sample []byte, err error)
	store   *classStore
	held    []int32
}

// Contents opens the dataset's store for reading. Errors: fs.ErrNotExist, ErrIndex.
func (c *Cache) Contents(ds store.Dataset) (*Contents, error) {
	dir, err := c.dir.OpenDirectory(storeName(ds.Fingerprint))
	if err != nil {
		return nil, err
	}
	defer dir.Close() //nolint:errcheck // a directory has nothing to lose
	s := newStore(nil, ds)
	var size int64
	if s.data, size, err = openData(dir); err != nil {
		return nil, err
	}
	x := &Contents{store: s}
	index, err := dir.Open(indexName, unix.O_RDONLY)
	if err == nil {
		var fresh bool
		x.held, _, _, fresh, err = s.recover(index, size, math.MaxInt64)
		if fresh {
			err = ErrIndex
		}
		_ = index.Close()
	}
	if err != nil {
		_ = s.data.Close()
		return nil, err
	}
	slices.Sort(x.held)
	return x, nil
}

// Held returns the IDs of the samples, sorted. The caller must not modify them.
func (x *Contents) Held() []int32 { return x.held }

// Copy is the result of Compare.
type Copy struct {
	Digest   uint32 // of the copy's bytes
	Recorded uint32 // the digest in the index
	Equal    bool   // the copy's bytes are equal to want
}

// Compare reads the copy of sample id, in pieces of the length of buffer, and compares it with
// want, whose length must be the sample's size; a nil want is not compared.
func (x *Contents) Compare(id int, want, buffer []byte) (Copy, error) {
	if info, ok := x.store.FormInfo(id); ok {
		return x.compareForm(id, info, want)
	}
	size := x.store.sampleSize(id)
	offset := x.store.where[id].Load() - 1
	found := Copy{Recorded: x.store.sums[id].Load(), Equal: want != nil || size == 0}
	var sum digest.Hash
	for n := int64(0); n < size; {
		piece := buffer[:min(int64(len(buffer)), size-n)]
		if _, err := x.store.data.ReadAt(piece, offset+n); err != nil {
			return found, err
		}
		sum.Add(piece)
		found.Equal = found.Equal && bytes.Equal(piece, want[n:n+int64(len(piece))])
		n += int64(len(piece))
	}
	found.Digest = sum.Sum()
	return found, nil
}

// compareForm is Compare of a copy in another form than as read. If that was altered, the digests
// are the form's.
func (x *Contents) compareForm(id int, info store.FormInfo, want []byte) (Copy, error) {
	data := make([]byte, info.Bytes)
	if _, err := x.store.data.ReadAt(data, offsetOf(x.store.where[id].Load())); err != nil {
		return Copy{}, err
	}
	sum := digest.Of(data)
	if sum != info.Digest || x.Restore == nil {
		return Copy{Digest: sum, Recorded: info.Digest, Equal: want != nil}, nil
	}
	sample, err := x.Restore(data, info.Kind)
	return Copy{
		Digest: digest.Of(sample), Recorded: x.store.sums[id].Load(),
		Equal: want != nil && bytes.Equal(sample, want),
	}, err
}

// Close closes the store's files.
func (x *Contents) Close() error { return x.store.data.Close() }

// Drop removes samples from the dataset's store. It writes a new index, so a failure leaves the
// store unchanged.
func (c *Cache) Drop(ds store.Dataset, ids []int32) error {
	name := storeName(ds.Fingerprint)
	used, err := c.dir.CheckDirectory(name)
	if err != nil {
		return err
	}
	dir, err := c.dir.OpenDirectory(name)
	if err != nil {
		return err
	}
	defer dir.Close()     //nolint:errcheck // a directory has nothing to lose
	defer dir.Touch(used) // restores the time of the last use, which the new file has changed
	class := &Class{Options: Options{Dir: c.dir.Path(), Warn: func(string) {}}, dir: c.dir}
	s := newStore(class, ds)
	if err := s.openFiles(dir, math.MaxInt64); err != nil {
		return err
	}
	for _, id := range ids {
		if s.Has(int(id)) {
			s.where[id].Store(absent)
			s.mu.order.Gone(s.holds)
		}
	}
	err = s.rewriteIndex(dir)
	_, closed := s.shut()
	return errors.Join(err, closed)
}

// Remove deletes the store's files. kept reports that its directory remains, because it contains
// other files.
func (c *Cache) Remove(fingerprint [16]byte) (kept bool, err error) {
	if err := removeStore(c.dir, storeName(fingerprint)); err != nil {
		return false, err
	}
	return c.dir.Has(storeName(fingerprint))
}

// RemoveMarker deletes the marker; the directory is then no longer a cache. The removal of stores
// is made durable first: a power failure must not leave any without a marker, as the directory
// would be refused.
func (c *Cache) RemoveMarker() error {
	if err := c.dir.Sync(); err != nil {
		return err
	}
	return c.dir.Remove(markerName)
}
