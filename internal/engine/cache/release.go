package cache

import (
	"os"
	"time"

	"github.com/hdmlp/hdmlp/internal/store"
)

// # Memory that is given back
//
// A class in memory consists of segments, which the class gives back when memory is short, while
// jobs read. The cache ranks the samples by which it can do without first (Rank), and notifies its
// watchers (Watch) of the segments that are given back, and of the samples in them. Until the
// memory may grow again (store.Shrinker), nothing is destined for the class (destination):
// samples that were dropped are read from the source without being kept, and not for other nodes
// (short). Then they are brought again, as they are needed and ahead of time (Refill).

// Segment identifies a segment of shared memory of one of the cache's classes.
type Segment struct {
	Class  int    // from 0
	Number uint32 // in the class
}

// Watch notifies w of segments that are given back from now on, until leave is called.
func (c *Cache) Watch(w store.Watcher) (leave func()) { return c.watchers.Watch(w) }

// Horizon returns for how long ahead of its use a sample should be located; 0: as long as one
// likes.
func (c *Cache) Horizon() time.Duration { return c.watchers.Horizon() }

// Refill implements store.Refiller.
func (c *Cache) Refill() {
	c.demoted.clear()
	c.uses.Lock()
	defer c.uses.Unlock()
	for _, u := range c.uses.list {
		u.refill()
	}
}

// Rank implements store.Refiller. A sample's rank is how late in the plans' order of filling
// it comes, which is the order of its first need or of its usefulness, as the policy has it. What
// no plan assigns to the class ranks last.
func (c *Cache) Rank(class int) func(id int32) float64 {
	ranks := make([]float32, c.index.Len())
	for i := range ranks {
		ranks[i] = 2
	}
	c.uses.Lock()
	defer c.uses.Unlock()
	for _, u := range c.uses.list {
		if class >= len(u.plan) {
			continue
		}
		for i, id := range u.plan[class] {
			ranks[id] = min(ranks[id], float32(i)/float32(len(u.plan[class])))
		}
	}
	return func(id int32) float64 { return float64(ranks[id]) }
}

// short reports whether a sample is not held because memory is short, so that it would be read for
// each request.
func (c *Cache) short(id int) bool {
	j := c.class(id)
	return j != 0 && !c.classes[j-1].growing() && !c.Has(id)
}

// Segment returns the memfd of a segment and its size. ok is false if there is no such segment any
// more.
func (c *Cache) Segment(s Segment) (memfd *os.File, size int64, ok bool) {
	if s.Class >= len(c.classes) || c.classes[s.Class].inPlace == nil {
		return nil, 0, false
	}
	return c.classes[s.Class].inPlace.Segment(s.Number)
}
