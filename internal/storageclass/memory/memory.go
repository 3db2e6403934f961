// Package memory is the storage class that holds samples in RAM.
//
// It owns one memfd per dataset. Only the daemon can write to it: it maps the
// memfd first and seals it then, so that a process which gets the descriptor can
// map it for reading and can neither write nor resize it. The samples lie
// outside the Go heap, one after the other, and the index is one array of
// offsets without a pointer, so the garbage collector never looks at either.
//
// The memfd is as large as the whole dataset, if address space allows it, and
// its pages are taken only as samples come: a store that is opened again with
// more room grows where it lies. Pages are taken with fallocate before they are
// written, so memory that runs out is ErrFull and never a bus error. Sealed
// memory cannot be given back in part: a store is evicted as a whole or stays.
//
// Has, Locate and Read take no lock. A store's methods must not be called after
// its last Close: the class may evict it from then on.
package memory

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/hdmlp/hdmlp/internal/invariants"
	"github.com/hdmlp/hdmlp/internal/size"
	"github.com/hdmlp/hdmlp/internal/storageclass"
)

// Options configure a class. The zero value has no limit but the machine's.
type Options struct {
	// Limit tells how many bytes of memory could be taken right now, on top of
	// what the class has taken already (see Class.Taken): what package probe
	// finds available. It is asked whenever a store is opened. nil: no limit.
	Limit func() (int64, error)
}

// Class is the storage class "memory".
type Class struct {
	limit func() (int64, error)
	taken atomic.Int64 // bytes, of all stores

	mu struct {
		invariants.Mutex[Class]
		stores map[[16]byte]*store
		clock  int64 // counts Opens, for the order of eviction
		closed bool
	}
}

var _ storageclass.Class = (*Class)(nil)

// New returns a class without stores.
func New(options Options) *Class {
	c := &Class{limit: options.Limit}
	if c.limit == nil {
		c.limit = func() (int64, error) { return math.MaxInt64, nil }
	}
	c.mu.stores = map[[16]byte]*store{}
	return c
}

// Kind is the kind's name.
func (c *Class) Kind() string { return Name }

// Taken is the memory, in bytes, that the stores hold now, idle ones included.
// It takes no lock: Options.Limit may call it.
func (c *Class) Taken() int64 { return c.taken.Load() }

// Idle is the memory, in bytes, that evicting all idle stores would give back.
func (c *Class) Idle() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.idle()
}

// Open is storageclass.Class's. A store that is found again keeps all that it
// holds, even where that is more than room.
func (c *Class) Open(ds storageclass.Dataset, room int64) (storageclass.Store, error) {
	if room < 0 || ds.Samples < 0 || int64(ds.Samples) > math.MaxInt32 {
		return nil, fmt.Errorf("memory class: open a store of %d bytes for %d samples: "+
			"out of range", room, ds.Samples)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed {
		return nil, errors.New("memory class: it is closed")
	}
	s := c.mu.stores[ds.Fingerprint]
	if s != nil && len(s.where) != ds.Samples {
		return nil, fmt.Errorf("memory class: dataset %x has %d samples, its store was made for %d",
			ds.Fingerprint, ds.Samples, len(s.where))
	}
	if s != nil && s.opens > 0 {
		s.opens++
		return s, nil
	}
	if s != nil && room > s.size {
		c.evict(s)
		s = nil
	}
	if s != nil {
		_, used := s.Room()
		room = max(room, used, s.end())
	}
	if err := c.makeRoom(s, room); err != nil {
		return nil, err
	}
	if s == nil {
		fresh, err := newStore(c, ds, room)
		if err != nil {
			return nil, fmt.Errorf("memory class: a store of %s: %w", size.Format(room), err)
		}
		s = fresh
		c.mu.stores[ds.Fingerprint] = s
	}
	s.resize(room)
	s.opens = 1
	c.mu.clock++
	s.opened = c.mu.clock
	return s, nil
}

// Available is storageclass.Class's.
func (c *Class) Available(ds storageclass.Dataset) (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	own := c.mu.stores[ds.Fingerprint]
	if own != nil && own.opens > 0 {
		total, _ := own.Room()
		return total, nil
	}
	free, err := c.free()
	if err != nil {
		return 0, err
	}
	return max(add(free, c.idle()), 0), nil
}

// Close evicts all stores. It is an error, and changes nothing, while one is open.
func (c *Class) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.mu.stores {
		if s.opens > 0 {
			return fmt.Errorf("memory class: close: the store of dataset %x is open", s.fingerprint)
		}
	}
	for _, s := range c.mu.stores {
		c.evict(s)
	}
	c.mu.closed = true
	return nil
}

// makeRoom evicts idle stores other than own, the one opened longest ago first,
// until own, or a new store if own is nil, can have room bytes. c.mu is held.
func (c *Class) makeRoom(own *store, room int64) error {
	for {
		free, err := c.free()
		if err != nil {
			return err
		}
		if own != nil {
			free = add(free, own.taken())
		}
		if room <= max(free, 0) { // nothing always fits
			return nil
		}
		oldest := c.oldest(own)
		if oldest == nil {
			return &storageclass.LimitError{
				What: "a store in memory", Need: room, Limit: max(free, 0),
				Hint: "set memory to less, or give the job more",
			}
		}
		c.evict(oldest)
	}
}

// Yield evicts idle stores, the one opened longest ago first, until what they leave is not less
// than what Options.Limit and the open stores need.
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

// oldest is the idle store other than own that was opened longest ago; nil: there is none. c.mu is
// held.
func (c *Class) oldest(own *store) (oldest *store) {
	for _, s := range c.mu.stores {
		if s != own && s.opens == 0 && (oldest == nil || cmp.Less(s.opened, oldest.opened)) {
			oldest = s
		}
	}
	return oldest
}

// free is what is left for new stores when the open ones take all the room that
// they were promised. It may be negative. c.mu is held.
func (c *Class) free() (int64, error) {
	free, err := c.limit()
	if err != nil {
		return 0, fmt.Errorf("memory class: how much memory there is: %w", err)
	}
	for _, s := range c.mu.stores {
		if s.opens > 0 {
			total, _ := s.Room()
			free -= max(total-s.taken(), 0)
		}
	}
	return free, nil
}

// evict forgets an idle store and gives its memory back. c.mu is held.
func (c *Class) evict(s *store) {
	delete(c.mu.stores, s.fingerprint)
	s.release()
}

func (c *Class) idle() int64 {
	var sum int64
	for _, s := range c.mu.stores {
		if s.opens == 0 {
			sum += s.taken()
		}
	}
	return sum
}

func (c *Class) closeStore(s *store) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.opens == 0 {
		return fmt.Errorf("memory class: the store of dataset %x was closed more often than opened",
			s.fingerprint)
	}
	s.opens--
	return nil
}

// add is a+b for b >= 0, at most the largest number there is.
func add(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
