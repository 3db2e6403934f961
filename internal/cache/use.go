package prefetch

import (
	"context"
	"slices"
	"sync"
)

// Use is what one job does with a Cache: what it wants kept there, what it has read ahead, and which other nodes it asks.
// Jobs that share a cache come and go, and each takes with it what it brought. Its methods may be called by many goroutines
// at a time, but for Close, which is the last.
type Use struct {
	cache *Cache
	peers Peers
	fills []*fill // guarded by cache.uses
	plan  [][]int32

	ctx    context.Context // of the filling
	cancel context.CancelFunc
}

// uses are the jobs that use a cache, in the order in which they came.
type uses struct {
	sync.Mutex
	list []*Use
}

// Use begins a job's use of the cache, which wants nothing kept yet. peers are the job's other nodes; nil: it has one node.
func (c *Cache) Use(peers Peers) *Use {
	u := &Use{cache: c, peers: peers}
	u.ctx, u.cancel = context.WithCancel(context.Background())
	c.uses.Lock()
	defer c.uses.Unlock()
	c.uses.list = append(c.uses.list, u)
	return u
}

// Keep says, per class, which samples the job wants kept there, in place of what it said before. What lies in a class
// already stays. Where jobs want a sample in different classes, who came first decides.
func (u *Use) Keep(plan [][]int32) {
	u.cache.uses.Lock()
	defer u.cache.uses.Unlock()
	u.plan = plan
	u.cache.combine()
}

// combine makes one plan of what all jobs want. c.uses is held.
func (c *Cache) combine() {
	planned, any := make([]uint8, c.index.Len()), false
	for _, u := range c.uses.list {
		for j := range min(len(u.plan), len(c.classes)) {
			for _, id := range u.plan[j] {
				if any = true; planned[id] == 0 {
					planned[id] = uint8(j + 1)
				}
			}
		}
	}
	if any {
		c.planned.Store(&planned)
	} else {
		c.planned.Store(nil)
	}
}

// class returns the class, from 1, that is to hold the sample; 0: none.
func (c *Cache) class(id int) int {
	planned := c.planned.Load()
	if planned == nil {
		return 0
	}
	return int((*planned)[id])
}

// Fill brings the samples of the plan, which Keep has been told, into their storage classes ahead of time, class by class
// in the plan's order (thesis 3.2.2: by first access), while the staging buffers leave the
// source idle. read is called for each sample that was read from the source. A sample that can not be read
// is left to the batch that needs it: the policy for errors is the job's.
func (u *Use) Fill(plan [][]int32, read func(bytes int64)) {
	c := u.cache
	scratch := sync.Pool{New: func() any { return new([]byte) }}
	c.uses.Lock()
	defer c.uses.Unlock()
	for _, ids := range plan {
		u.fills = append(u.fills, c.pool.addFill(ids, func(w *worker, id int) {
			w.peers = u.peers
			defer func() { w.peers = nil }()
			var out outcome
			var err error
			if c.destined(id) {
				_, out, err = c.fetchInPlace(u.ctx, w, id)
			} else if j := c.class(id); j != 0 && !c.classes[j-1].Store.Has(id) {
				buf := scratch.Get().(*[]byte)
				size := int(c.index.Size(id))
				*buf = slices.Grow((*buf)[:0], size)[:size]
				out, err = c.fetchInto(u.ctx, w, id, *buf)
				scratch.Put(buf)
			}
			if err == nil && out.source {
				read(c.index.Size(id))
			}
		}))
	}
}

// Close ends the job's use: nothing more is read ahead for it, nor kept. Reads under way go on until the cache is closed.
func (u *Use) Close() {
	u.cancel()
	c := u.cache
	c.uses.Lock()
	defer c.uses.Unlock()
	for _, fill := range u.fills {
		c.pool.removeFill(fill)
	}
	c.uses.list = slices.DeleteFunc(c.uses.list, func(other *Use) bool { return other == u })
	c.combine()
}
