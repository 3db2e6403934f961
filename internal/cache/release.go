package cache

import (
	"os"
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/storageclass"
)

// # Memory that is given back
//
// A class in memory consists of segments, which the class gives back when memory is short, while
// jobs read. The cache is a tenant of each such store: it tells its watchers which segments go, and
// which samples went with them, and it says which samples it can do without first.
// Until the memory may grow again (storageclass.InPlace.Growing), nothing is destined for the class
// (destination): samples that went are read from the source without being kept, and not for other
// nodes (short). Then they are brought again, as they are needed and ahead of time (Refill).

// Segment identifies a segment of shared memory of one of the cache's classes.
type Segment struct {
	Class  int    // from 0
	Number uint32 // in the class
}

// Watcher is told of segments that are given back. Its methods must not block. It is an alias, so
// that packages which do not import this one can name it.
type Watcher = interface {
	// Vacate is called once the samples of a segment, by class and number, are no longer located.
	// See storageclass.Tenant.
	Vacate(class int, segment uint32, samples []int32, settled, gone func())
	// Refill is called when samples that were given back may be kept again.
	Refill()
	// Delay estimates how long it takes from Vacate until gone is called, if the process keeps no
	// samples.
	Delay() time.Duration
}

// watchers are the watchers of a cache, and its tenancies in the stores.
type watchers struct {
	sync.Mutex // guards list
	list       []Watcher
	leave      []func() // set by New
}

// tenant is the cache as a tenant of one class.
type tenant struct {
	cache *Cache
	class int
}

var _ storageclass.Tenant = (*tenant)(nil)

// joinStores has the cache told of segments that are given back.
func (c *Cache) joinStores() {
	for j := range c.classes {
		if p := c.classes[j].inPlace; p != nil {
			c.watchers.leave = append(c.watchers.leave, p.Join(&tenant{c, j}))
		}
	}
}

// leaveStores ends that.
func (c *Cache) leaveStores() {
	for _, leave := range c.watchers.leave {
		leave()
	}
}

// Watch has w told of segments that are given back from now on, until leave is called.
func (c *Cache) Watch(w Watcher) (leave func()) {
	c.watchers.Lock()
	defer c.watchers.Unlock()
	c.watchers.list = append(c.watchers.list, w)
	return func() {
		c.watchers.Lock()
		defer c.watchers.Unlock()
		list := make([]Watcher, 0, len(c.watchers.list))
		for _, o := range c.watchers.list {
			if o != w {
				list = append(list, o)
			}
		}
		c.watchers.list = list
	}
}

func (c *Cache) watching() []Watcher {
	c.watchers.Lock()
	defer c.watchers.Unlock()
	return c.watchers.list // which is replaced, never modified, except that it grows
}

// Vacate implements storageclass.Tenant.
func (t *tenant) Vacate(segment uint32, samples []int32, settled, gone func()) {
	all := t.cache.watching()
	if len(all) == 0 {
		settled()
		gone()
		return
	}
	settledAll, goneAll := after(len(all), settled), after(len(all), gone)
	for _, w := range all {
		w.Vacate(t.class, segment, samples, sync.OnceFunc(settledAll),
			sync.OnceFunc(goneAll))
	}
}

// after returns a function that calls f when it was called n times.
func after(n int, f func()) func() {
	var mu sync.Mutex
	return func() {
		mu.Lock()
		n--
		last := n == 0
		mu.Unlock()
		if last {
			f()
		}
	}
}

// Refill implements storageclass.Tenant.
func (t *tenant) Refill() {
	c := t.cache
	c.demoted.clear()
	c.uses.Lock()
	for _, u := range c.uses.list {
		u.refill()
	}
	c.uses.Unlock()
	for _, w := range c.watching() {
		w.Refill()
	}
}

// Delay implements storageclass.Tenant.
func (t *tenant) Delay() (longest time.Duration) {
	for _, w := range t.cache.watching() {
		longest = max(longest, w.Delay())
	}
	return longest
}

// Rank implements storageclass.Tenant. A sample's rank is how late in the plans' order of filling
// it comes, which is the order of its first need or of its usefulness, as the policy has it. What
// no plan wants in the class ranks last.
func (t *tenant) Rank() func(id int32) float64 {
	c := t.cache
	ranks := make([]float32, c.index.Len())
	for i := range ranks {
		ranks[i] = 2
	}
	c.uses.Lock()
	defer c.uses.Unlock()
	for _, u := range c.uses.list {
		if t.class >= len(u.plan) {
			continue
		}
		for i, id := range u.plan[t.class] {
			ranks[id] = min(ranks[id], float32(i)/float32(len(u.plan[t.class])))
		}
	}
	return func(id int32) float64 { return float64(ranks[id]) }
}

// short reports whether a sample is not held because memory is short, so that it would be read for
// each request.
func (c *Cache) short(id int) bool {
	j := c.class(id)
	return j != 0 && c.classes[j-1].inPlace != nil && !c.classes[j-1].inPlace.Growing() && !c.Has(id)
}

// Horizon returns for how long ahead of its use a sample should be located; 0: as long as one
// likes.
func (c *Cache) Horizon() (least time.Duration) {
	for j := range c.classes {
		if p := c.classes[j].inPlace; p != nil {
			if d := p.Horizon(); d > 0 && (least == 0 || d < least) {
				least = d
			}
		}
	}
	return least
}

// Segment returns the memfd of a segment and its size. ok is false if there is no such segment any
// more.
func (c *Cache) Segment(s Segment) (memfd *os.File, size int64, ok bool) {
	if s.Class >= len(c.classes) || c.classes[s.Class].inPlace == nil {
		return nil, 0, false
	}
	return c.classes[s.Class].inPlace.Segment(s.Number)
}
