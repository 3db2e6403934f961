// Package heap is a storage class in the daemon's own memory: each sample is a slice on Go's heap.
//
// One lock guards a class and its stores. All methods may be called concurrently.
package heap

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/store"
)

const name = "heap"

// Kind describes the class.
func Kind() store.Kind {
	return store.Kind{
		Name: name,
		Help: "the daemon's own memory, from which samples are copied into batches",
		Options: []store.Option{{
			Option: option.Option{
				Key: store.CapacityKey, Kind: option.Size, Min: 1, Required: true,
				Help: "Bytes that samples may occupy",
			},
			Example: "16GiB",
		}},
		Memory: true,
		New: func(o store.Options) (store.Class, error) {
			return New(option.Get[int64](o.Values, store.CapacityKey)), nil
		},
	}
}

// Class holds at most capacity bytes of samples.
type Class struct {
	capacity int64

	mu     sync.RWMutex  // guards the following, and the stores
	stores []*classStore // the most recently opened last
	closed bool
}

// New returns a class without stores.
func New(capacity int64) *Class { return &Class{capacity: capacity} }

// Kind returns the kind's name.
func (c *Class) Kind() string { return name }

// Open returns the dataset's store.
func (c *Class) Open(ds store.Dataset, capacity int64) (store.Store, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := c.find(ds)
	switch {
	case c.closed:
		return nil, errors.New("heap: the class is closed")
	case capacity < 0:
		return nil, fmt.Errorf("heap: the capacity is %d bytes; it must be 0 or more", capacity)
	case i >= 0 && c.stores[i].ds.Samples != ds.Samples:
		return nil, fmt.Errorf("heap: dataset %x has %d samples, not %d", ds.Fingerprint,
			c.stores[i].ds.Samples, ds.Samples)
	case i >= 0 && c.stores[i].opens > 0:
		c.stores[i].opens++
		return c.stores[i], nil
	}
	if limit := c.available(ds); capacity > limit {
		return nil, &store.LimitError{What: "a store on the heap", Need: capacity, Limit: limit}
	}
	s := &classStore{class: c, samples: make(map[int][]byte), origins: make(map[int]store.Origin)}
	if i >= 0 {
		s = c.stores[i] // warm
		c.stores = slices.Delete(c.stores, i, i+1)
	}
	s.ds, s.capacity = ds, capacity
	s.opens = 1
	for s.used > capacity {
		s.drop(int(s.held[len(s.held)-1])) // what was put last
	}
	c.stores = append(c.stores, s)
	for c.promised() > c.capacity { // evict what was opened least recently
		idle := slices.IndexFunc(c.stores, func(s *classStore) bool { return s.opens == 0 })
		c.stores = slices.Delete(c.stores, idle, idle+1)
	}
	return s, nil
}

// Available returns how many bytes a store that is opened now could have.
func (c *Class) Available(ds store.Dataset) (int64, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.available(ds), nil
}

func (c *Class) available(ds store.Dataset) int64 {
	if i := c.find(ds); i >= 0 && c.stores[i].opens > 0 {
		return c.stores[i].capacity
	}
	n := c.capacity
	for _, s := range c.stores {
		if s.opens > 0 {
			n -= s.capacity
		}
	}
	return n
}

// promised returns the bytes that open stores may take and idle ones have taken.
func (c *Class) promised() (sum int64) {
	for _, s := range c.stores {
		if s.opens > 0 {
			sum += s.capacity
		} else {
			sum += s.used
		}
	}
	return sum
}

func (c *Class) find(ds store.Dataset) int {
	return slices.IndexFunc(c.stores, func(s *classStore) bool {
		return s.ds.Fingerprint == ds.Fingerprint
	})
}

// Close forgets everything.
func (c *Class) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.ContainsFunc(c.stores, func(s *classStore) bool { return s.opens > 0 }) {
		return errors.New("heap: a store is open")
	}
	c.stores, c.closed = nil, true
	return nil
}

// classStore holds samples of one dataset; its class's lock guards it.
type classStore struct {
	class          *Class
	ds             store.Dataset
	capacity, used int64
	opens          int
	samples        map[int][]byte
	origins        map[int]store.Origin
	held           []int32
}

func (s *classStore) Has(id int) bool {
	s.class.mu.RLock()
	defer s.class.mu.RUnlock()
	return s.samples[id] != nil
}

func (s *classStore) Held() []int32 {
	s.class.mu.RLock()
	defer s.class.mu.RUnlock()
	return slices.Clone(s.held)
}

func (s *classStore) Capacity() (total, used int64) {
	s.class.mu.RLock()
	defer s.class.mu.RUnlock()
	return s.capacity, s.used
}

func (s *classStore) Put(id int, data []byte, origin store.Origin) error {
	if id < 0 || id >= s.ds.Samples || int64(len(data)) != s.ds.Size(id) {
		return fmt.Errorf("heap: %d bytes for sample %d", len(data), id)
	}
	s.class.mu.Lock()
	defer s.class.mu.Unlock()
	switch {
	case s.samples[id] != nil:
		return nil
	case int64(len(data)) > s.capacity-s.used:
		return store.ErrFull
	}
	s.samples[id] = append(make([]byte, 0, max(len(data), 1)), data...) // never nil
	s.origins[id] = origin
	s.held = append(s.held, int32(id))
	s.used += int64(len(data))
	return nil
}

func (s *classStore) Origin(id int) (store.Origin, bool) {
	s.class.mu.RLock()
	defer s.class.mu.RUnlock()
	origin, ok := s.origins[id]
	return origin, ok
}

func (s *classStore) Drop(ids ...int) {
	s.class.mu.Lock()
	defer s.class.mu.Unlock()
	for _, id := range ids {
		s.drop(id)
	}
}

func (s *classStore) drop(id int) {
	if s.samples[id] == nil {
		return
	}
	s.used -= int64(len(s.samples[id]))
	delete(s.samples, id)
	delete(s.origins, id)
	s.held = slices.DeleteFunc(s.held, func(held int32) bool { return int(held) == id })
}

func (s *classStore) Read(id int, dst []byte) error {
	s.class.mu.RLock()
	defer s.class.mu.RUnlock()
	data := s.samples[id]
	switch {
	case data == nil:
		return store.ErrNotHeld
	case len(dst) != len(data):
		return fmt.Errorf("heap: %d bytes for sample %d, which has %d", len(dst), id, len(data))
	}
	copy(dst, data)
	return nil
}

func (s *classStore) Close() error {
	s.class.mu.Lock()
	defer s.class.mu.Unlock()
	if s.opens == 0 {
		return errors.New("heap: the store is closed")
	}
	s.opens--
	return nil
}
