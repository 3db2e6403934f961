package survey

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/lib/digest"
	"github.com/hdmlp/hdmlp/internal/lib/host"
	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/study/measure"
)

// temporary is the pattern of the directory that a class on a disk gets.
const temporary = ".hdmlp-probe-*"

// Class measures a storage class: a new one, whose stores hold random bytes. That of a kind with a
// directory is in a temporary directory, which is removed as soon as the files in it are open, so
// that nothing is left of it whatever happens. (Network file systems keep open files; Close removes
// the directory again.)
type ClassLoad struct {
	kind   store.Kind
	class  store.Class
	dir    string // "": in memory
	random *rand.Rand
	cached atomic.Bool
	stores []*Store
}

// NewClass makes a class of the kind, in a temporary directory of parent if the kind has one.
func NewClass(kind store.Kind, parent string, capacity int64, r *rand.Rand) (*ClassLoad, error) {
	c := &ClassLoad{kind: kind, random: r}
	options := store.Options{
		Values: option.Values{store.CapacityKey: capacity}, Warn: func(string) {},
	}
	if kind.Has(store.PathKey) {
		dir, err := os.MkdirTemp(parent, temporary)
		if err != nil {
			return nil, err
		}
		c.dir = dir
		options.Values[store.PathKey], options.Values[store.ReserveKey] = dir, int64(1)
	}
	class, err := kind.New(options)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	c.class = class
	return c, nil
}

// Cached reports whether samples were read from the page cache, because they could not be dropped
// from it.
func (c *ClassLoad) Cached() bool { return c.cached.Load() }

// Close removes everything.
func (c *ClassLoad) Close() error {
	var errs []error
	for _, s := range c.stores {
		errs = append(errs, s.close())
	}
	if c.class != nil {
		errs = append(errs, c.class.Close())
	}
	return errors.Join(append(errs, c.remove())...)
}

func (c *ClassLoad) remove() error {
	if c.dir == "" {
		return nil
	}
	if err := os.RemoveAll(c.dir); err != nil {
		return fmt.Errorf("remove %s, which hdmlp probe has made: %w", c.dir, err)
	}
	return nil
}

// Store is a store of samples of one size.
type Store struct {
	of     *ClassLoad
	size   int64
	number int // of samples that have room
	store  store.Store
	files  []*os.File // of its directory
	data   []byte
	origin store.Origin

	put   int // samples 0..put-1 are or were put
	order []int
	next  int // of order
}

// Stores opens a store for each size, in bytes, with room for that many bytes. It is called once.
func (c *ClassLoad) Stores(room int64, sizes ...int64) ([]*Store, error) {
	for _, size := range sizes {
		s := &Store{of: c, size: size, number: int(max(room/size, 1)), data: make([]byte, size)}
		_, _ = crand.Read(s.data) // never fails
		s.origin.Digest = digest.Of(s.data)
		if err := s.open(); err != nil {
			return nil, err
		}
		c.stores = append(c.stores, s)
	}
	if c.dir == "" {
		return c.stores, nil
	}
	err := filepath.WalkDir(c.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		f, err := os.Open(path)
		if err == nil {
			c.stores[0].files = append(c.stores[0].files, f)
		}
		return err
	})
	for _, s := range c.stores[1:] {
		s.files = c.stores[0].files
	}
	_ = c.remove() // Close tries again
	return c.stores, err
}

// open opens a store of a dataset of its own.
func (s *Store) open() (err error) {
	ds := store.Dataset{Samples: s.number, Size: func(int) int64 { return s.size }}
	_, _ = crand.Read(ds.Fingerprint[:])
	s.store, err = s.of.class.Open(ds, int64(s.number)*s.size)
	s.put = 0
	return err
}

func (s *Store) close() error {
	for _, f := range s.files {
		_ = f.Close() // it was only read; the first store's Close closes all
	}
	if s.store == nil {
		return nil
	}
	return s.store.Close()
}

// Write returns the load of putting samples into the store. A round ends when they are on the disk.
func (s *Store) Write() measure.Load {
	first := 0
	l := measure.Load{
		Prepare: func(_ context.Context, n int) (int, error) {
			n = min(n, s.number)
			if s.put+n > s.number {
				if err := s.empty(); err != nil {
					return 0, err
				}
			}
			first = s.put
			s.put += n
			return n, nil
		},
		Do: func(_ context.Context, _, i int) (int64, error) {
			return s.size, s.store.Put(first+i, s.data, s.origin)
		},
	}
	if s.of.dir != "" {
		l.Settle = func(context.Context) error { return s.sync() }
	}
	return l
}

// empty makes the room of what was put available again: by dropping samples, whose bytes are used
// again, or, in memory, where they are not, with a new store.
func (s *Store) empty() error {
	if s.of.dir == "" {
		if err := s.store.Close(); err != nil {
			return err
		}
		return s.open()
	}
	for id := range s.put {
		s.store.Drop(id)
	}
	s.put = 0
	return nil
}

func (s *Store) sync() error {
	for _, f := range s.files {
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return fmt.Errorf("sync: %w", err)
		}
	}
	return nil
}

// ErrEmpty reports that there is nothing to read, because nothing could be written.
var ErrEmpty = errors.New("no samples could be written, so that none can be read")

// Read returns the load of reading samples, in random order, that were put.
func (s *Store) Read(streams int) measure.Load {
	buffers := make([][]byte, max(streams, 1))
	for i := range buffers {
		buffers[i] = make([]byte, s.size)
	}
	var dealt []int
	return measure.Load{
		Prepare: func(_ context.Context, n int) (int, error) {
			if s.order == nil {
				if err := s.fill(); err != nil {
					return 0, err
				}
			}
			if len(s.order) == 0 {
				return 0, ErrEmpty
			}
			n = min(n, len(s.order))
			if s.next == 0 || s.next+n > len(s.order) {
				s.of.random.Shuffle(len(s.order), func(a, b int) {
					s.order[a], s.order[b] = s.order[b], s.order[a]
				})
				s.next = 0
			}
			s.next += n
			dealt = s.order[s.next-n : s.next]
			return n, s.drop()
		},
		Do: func(_ context.Context, stream, i int) (int64, error) {
			return s.size, s.store.Read(dealt[i], buffers[stream])
		},
	}
}

// least is how many samples there are to read, if there is room.
const least = 64

// fill puts samples if hardly any are held, and lists those that are.
func (s *Store) fill() error {
	held := s.store.Held()
	for id := 0; len(held) < min(least, s.number) && id < s.number; id++ {
		if s.store.Has(id) {
			continue
		}
		if err := s.store.Put(id, s.data, s.origin); err != nil {
			if len(held) == 0 {
				return fmt.Errorf("%w: %w", ErrEmpty, err)
			}
			break
		}
		held = append(held, int32(id))
	}
	for _, id := range held {
		s.order = append(s.order, int(id))
	}
	return nil
}

// drop drops the store's files from the page cache.
func (s *Store) drop() error {
	if s.of.dir == "" {
		return nil
	}
	if err := s.sync(); err != nil {
		return err
	}
	for _, f := range s.files {
		if host.DropCached(int(f.Fd()), 0, 0) {
			// Files of samples count, and not the index.
			if st, err := f.Stat(); err == nil && st.Size() >= s.size*int64(min(least, s.number)) {
				s.of.cached.Store(true)
			}
		}
	}
	return nil
}
