// Package memory is the storage class that holds samples in RAM.
//
// A store consists of segments, each a memfd. Only the daemon can write to one: it maps the memfd
// first and then seals it, so that a process which gets the descriptor can map it for reading but
// can neither write nor resize it. The samples lie outside the Go heap, one after the other, and
// the index is an array of locations without pointers, so the garbage collector scans neither.
//
// A segment is made when the ones before it are full, and its pages are allocated only as samples
// arrive, with fallocate before they are written: so running out of memory is ErrFull and never a
// bus error. Sealed memory cannot be freed in part, so memory is given back by segment
// (giveback.go); a segment and its states are in segment.go, and a store in store.go.
//
// Has, Locate, View and Read take no lock. A store's methods must not be called after its last
// Close, after which the class may evict it.
package memory

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/lib/invariants"
	"github.com/hdmlp/hdmlp/internal/store"
)

// Options configure a class. The zero value has no limit except the machine's.
type Options struct {
	// Limit returns how many bytes of memory could be allocated now, in addition to what the class
	// has allocated (see Class.Taken), as measured by package host. It is called whenever a store
	// is opened; nil means no limit.
	Limit func() (int64, error)
	// Segment is the size of segments in bytes, in whole pages; 0: 64 MiB, or less in a small store
	// and more in a large one.
	Segment int64
}

// Class is the storage class "memory".
type Class struct {
	limit     func() (int64, error)
	segment   int64
	taken     atomic.Int64 // bytes allocated by all stores
	allowance atomic.Int64 // bytes that they may allocate now (Allow)
	ceiling   atomic.Int64 // of taken, up to which they may allocate besides, or noCeiling
	horizon   atomic.Int64 // a time.Duration; 0: none was set
	returns   returns

	mu struct { // guards the following
		invariants.Mutex[Class]
		stores map[[16]byte]*classStore
		clock  int64 // counts Opens, for the order of eviction
		closed bool
	}
}

// noCeiling is the ceiling while the stores may grow.
const noCeiling = -1

var _ store.Class = (*Class)(nil)

// New returns a class without stores.
func New(options Options) *Class {
	c := &Class{limit: options.Limit, segment: options.Segment}
	c.allowance.Store(math.MaxInt64)
	c.ceiling.Store(noCeiling)
	if c.limit == nil {
		c.limit = func() (int64, error) { return math.MaxInt64, nil }
	}
	c.mu.stores = map[[16]byte]*classStore{}
	return c
}

// Kind returns the kind's name.
func (c *Class) Kind() string { return Name }

// Taken returns the memory, in bytes, that the stores have allocated, idle ones included, and what
// they have given back and is not free yet. It takes no lock, so Options.Limit may call it.
func (c *Class) Taken() int64 { return c.taken.Load() }

// Idle returns the memory, in bytes, that evicting all idle stores would free.
func (c *Class) Idle() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.idle()
}

// Open implements store.Class. A store that is reopened with less capacity than it holds
// drops its newest segments.
func (c *Class) Open(ds store.Dataset, capacity int64) (store.Store, error) {
	if capacity < 0 || ds.Samples < 0 || int64(ds.Samples) > math.MaxInt32 {
		return nil, fmt.Errorf("memory class: open a store of %d bytes for %d samples: "+
			"out of range", capacity, ds.Samples)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed {
		return nil, errors.New("memory class: the class is closed")
	}
	s := c.mu.stores[ds.Fingerprint]
	if s != nil && len(s.where) != ds.Samples {
		return nil, fmt.Errorf("memory class: dataset %x has %d samples, its store was created for %d",
			ds.Fingerprint, ds.Samples, len(s.where))
	}
	if s != nil && s.opens > 0 {
		s.opens++
		return s, nil
	}
	if s != nil {
		capacity = max(capacity, s.shrink(capacity))
	}
	c.evictOlder(&ds)
	if err := c.makeRoom(s, capacity); err != nil {
		return nil, err
	}
	if s == nil {
		fresh, err := newStore(c, ds, capacity)
		if err != nil {
			return nil, fmt.Errorf("memory class: a store of %s: %w", human.Format(capacity), err)
		}
		s = fresh
		c.mu.stores[ds.Fingerprint] = s
	}
	s.resize(capacity)
	s.opens = 1
	c.mu.clock++
	s.opened = c.mu.clock
	return s, nil
}

// Available implements store.Class.
func (c *Class) Available(ds store.Dataset) (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	own := c.mu.stores[ds.Fingerprint]
	if own != nil && own.opens > 0 {
		total, _ := own.Capacity()
		return total, nil
	}
	free, err := c.free()
	if err != nil {
		return 0, err
	}
	return max(add(free, c.idle()), 0), nil
}

// Close evicts all stores. If a store is open it returns an error and changes nothing.
func (c *Class) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.mu.stores {
		if s.opens > 0 {
			return fmt.Errorf("memory class: close: the store of dataset %x is open",
				s.dataset.Fingerprint)
		}
	}
	for _, s := range c.mu.stores {
		c.evict(s)
	}
	c.mu.closed = true
	return nil
}

// makeRoom evicts idle stores other than own, the one opened longest ago first, until own, or a new
// store if own is nil, can have capacity bytes. c.mu is held.
func (c *Class) makeRoom(own *classStore, capacity int64) error {
	for {
		free, err := c.free()
		if err != nil {
			return err
		}
		if own != nil {
			free = add(free, own.live())
		}
		if capacity <= max(free, 0) { // zero bytes always fit
			return nil
		}
		oldest := c.oldest(own)
		if oldest == nil {
			return &store.LimitError{
				What: "a store in memory", Need: capacity, Limit: max(free, 0),
				Hint: "reduce memory, or give the job more",
			}
		}
		c.evict(oldest)
	}
}

// Yield evicts idle stores, the one opened longest ago first, until the rest leaves what
// Options.Limit and the open stores need.
func (c *Class) Yield() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		free, err := c.free()
		oldest := c.oldest(nil)
		if err != nil || free >= 0 || oldest == nil {
			return err
		}
		c.evict(oldest)
	}
}

// evictOlder evicts the idle stores of a dataset's earlier versions, which nothing will open again.
// c.mu is held.
func (c *Class) evictOlder(ds *store.Dataset) {
	for _, s := range c.mu.stores {
		if s.opens == 0 && ds.Supersedes(&s.dataset) {
			c.evict(s)
		}
	}
}

// oldest returns the idle store other than own that was opened longest ago, nil if there is none.
// c.mu is held.
func (c *Class) oldest(own *classStore) (oldest *classStore) {
	for _, s := range c.mu.stores {
		if s != own && s.opens == 0 && (oldest == nil || cmp.Less(s.opened, oldest.opened)) {
			oldest = s
		}
	}
	return oldest
}

// free returns what is left for new stores if the open ones use all the capacity that they were
// promised. It may be negative. c.mu is held.
func (c *Class) free() (int64, error) {
	free, err := c.limit()
	if err != nil {
		return 0, fmt.Errorf("memory class: measure the available memory: %w", err)
	}
	for _, s := range c.mu.stores {
		if s.opens > 0 {
			free -= s.promised()
		}
	}
	return free, nil
}

// evict removes an idle store and frees its memory. c.mu is held.
func (c *Class) evict(s *classStore) {
	delete(c.mu.stores, s.dataset.Fingerprint)
	s.release()
}

func (c *Class) idle() int64 {
	var sum int64
	for _, s := range c.mu.stores {
		if s.opens == 0 {
			sum += s.live()
		}
	}
	return sum
}

func (c *Class) closeStore(s *classStore) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.opens == 0 {
		return fmt.Errorf("memory class: the store of dataset %x was closed more often than opened",
			s.dataset.Fingerprint)
	}
	s.opens--
	return nil
}

// add returns a+b for b >= 0, or the largest int64 if that overflows.
func add(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
