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

	"github.com/hdmlp/hdmlp/internal/digest"
	"github.com/hdmlp/hdmlp/internal/storageclass"
	"github.com/hdmlp/hdmlp/internal/storageclass/file/disk"
)

var (
	// ErrNoCache refuses a directory that is not a cache, or one of another version.
	ErrNoCache = errors.New("the directory is not a cache of HDMLP")
	// ErrIndex says that a store's index is damaged, or another version's or dataset's: the
	// store holds nothing, and the next job that opens it begins it anew.
	ErrIndex = errors.New("the store's index is damaged or of another version of hdmlp, so that " +
		"its samples are not used")
)

// Cache is a cache directory that is there already, for commands that look at it or clear it.
// Nothing is changed but by Lock, which writes the process's ID into the marker, Drop, Remove and
// RemoveMarker; these need the lock. For one goroutine.
type Cache struct {
	dir    *disk.Directory
	marker disk.File // locked; nil: it is only looked at
}

// Existing opens the cache. Errors: fs.ErrNotExist, ErrNoCache, *storageclass.UnsafeError.
func Existing(path string) (*Cache, error) {
	dir, err := disk.OpenCache(disk.System{}, path)
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

// look reads the marker, and returns which process has the directory: its ID, or
// "unknown"; "" if no process has it.
func (c *Cache) look() (pid string, err error) {
	marker, err := c.dir.Open(markerName, unix.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%s: %w: it has no file %s", c.dir.Path(), ErrNoCache, markerName)
	}
	if err != nil {
		return "", err
	}
	defer marker.Close() //nolint:errcheck // it was only read
	text := markerContents(marker)
	if !bytes.HasPrefix(text, []byte(markerVersion)) {
		line, _, _ := bytes.Cut(text[:min(len(text), 80)], []byte("\n"))
		return "", fmt.Errorf("%s: %w that this version knows: %s says %q, not %q", c.dir.Path(),
			ErrNoCache, markerName, line, strings.TrimSpace(markerVersion))
	}
	err = disk.Flock(marker, unix.LOCK_SH) // for a moment: lockMarker knows of it
	if errors.Is(err, unix.EWOULDBLOCK) {
		return markerPID(text), nil
	}
	return "", err
}

// User returns the ID of the process that has the cache, or "unknown"; "" if none has.
func (c *Cache) User() (pid string, err error) {
	if c.marker != nil {
		return "", nil // we have
	}
	return c.look()
}

// Lock keeps daemons away until Close. ErrInUse: one has the directory.
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

// Close gives the directory back.
func (c *Cache) Close() error {
	var err error
	if c.marker != nil {
		err = c.marker.Close()
	}
	return errors.Join(err, c.dir.Close())
}

// StoreInfo is what a store says of itself. Its samples are counted by the index alone.
type StoreInfo struct {
	Fingerprint [16]byte
	Used        time.Time    // when it was last opened
	Samples     int          // of the dataset; -1: not known
	Held        int          // samples
	HeldBytes   int64        // theirs
	Description *Description // nil: there is none, or none that can be used
	Problem     error        // why the index or the description cannot be used
}

// Stores lists the stores, the one used last first.
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

// count counts what the index says is held.
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
	header := make([]byte, headerSize)
	if _, err := index.ReadAt(header, 0); err != nil {
		return ErrIndex
	}
	fingerprint, samples, ok := decodeHeader(header)
	if !ok || fingerprint != s.Fingerprint {
		return ErrIndex
	}
	lengths := map[uint32]uint64{} // by ID; it takes as much as the index has records
	_, _, err = readIndex(index, fingerprint, samples, func(r record) {
		delete(lengths, r.id)
		if uint64(r.id) < uint64(samples) && r.length != dropped && r.offset <= uint64(size) &&
			r.length <= uint64(size)-r.offset {
			lengths[r.id] = r.length
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

// Contents are the samples of a store, for comparing them. Its methods may be called in
// parallel, Close last.
type Contents struct {
	store *store
	held  []int32
}

// Contents opens the dataset's store for reading. Errors: fs.ErrNotExist, ErrIndex.
func (c *Cache) Contents(ds storageclass.Dataset) (*Contents, error) {
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

// Held are the IDs of the samples, sorted. The caller must not change them.
func (x *Contents) Held() []int32 { return x.held }

// Copy is what Compare finds.
type Copy struct {
	Digest   uint32 // of the bytes that are there
	Recorded uint32 // and of those that were put
	Equal    bool   // the bytes are those that they were compared with
}

// Compare reads the copy of sample id, in pieces as long as buffer, and compares it with want,
// whose length must be the sample's size; nil: with nothing.
func (x *Contents) Compare(id int, want, buffer []byte) (Copy, error) {
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

// Close closes the files.
func (x *Contents) Close() error { return x.store.data.Close() }

// Drop has the dataset's store forget samples. It writes the index anew, so that a failure leaves
// the store as it was.
func (c *Cache) Drop(ds storageclass.Dataset, ids []int32) error {
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
	defer dir.Touch(used) // a new file changed it, and no job has used the store
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

// Remove deletes the store's files. kept: its directory stays, because something that is not ours
// is in it.
func (c *Cache) Remove(fingerprint [16]byte) (kept bool, err error) {
	if err := removeStore(c.dir, storeName(fingerprint)); err != nil {
		return false, err
	}
	return c.dir.Has(storeName(fingerprint))
}

// RemoveMarker deletes the marker: the directory is no cache any more.
func (c *Cache) RemoveMarker() error { return c.dir.Remove(markerName) }
