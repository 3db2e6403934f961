package cache

import (
	"context"
	"slices"
	"sync"
)

// Use is what one job does with a Cache: what it wants kept there, what it has read ahead, and
// which other nodes it asks. Jobs that share a cache come and go, and each takes with it what it
// brought. Its methods may be called by many goroutines at a time, but for Close, which is the
// last.
type Use struct {
	cache   *Cache
	request Request // of what is read ahead
	fills   []*fill // guarded by cache.uses
	plan    [][]int32

	ctx    context.Context // of the filling
	cancel context.CancelFunc
}

// uses are the jobs that use a cache, in the order in which they came.
type uses struct {
	sync.Mutex
	list []*Use
}

// Use begins a job's use of the cache, which wants nothing kept yet. peers are the job's other
// nodes; nil: it has one node.
func (c *Cache) Use(peers Peers) *Use {
	u := &Use{cache: c, request: Request{Peers: peers}}
	u.ctx, u.cancel = context.WithCancel(context.Background())
	c.uses.Lock()
	defer c.uses.Unlock()
	c.uses.list = append(c.uses.list, u)
	return u
}

// Keep says, per class, which samples the job wants kept there, in place of what it said before.
// What lies in a class already stays. Where jobs want a sample in different classes, the one that
// came first decides.
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

// Fill brings the samples of the plan, which Keep has been told, into their storage classes ahead
// of time, class by class in the plan's order (thesis 3.2.2: by first access), while the staging
// buffers leave the source idle. read is called for each sample that was read from the source. A
// sample that cannot be read is left to the batch that needs it: the policy for errors is the
// job's.
func (u *Use) Fill(plan [][]int32, read func(bytes int64)) {
	c := u.cache
	c.uses.Lock()
	defer c.uses.Unlock()
	for _, ids := range plan {
		u.fills = append(u.fills, c.pool.addFill(ids, func(w *Worker, id int) (abandoned bool) {
			s, err := u.bring(w, id)
			if err == nil && s.Read {
				read(c.index.Size(id))
			}
			return err == ErrAbandoned
		}))
	}
}

// bring brings a sample into the class that it is to lie in, if there is one that does not hold it.
// What a class has no room for is not read.
func (u *Use) bring(w *Worker, id int) (Sample, error) {
	c := u.cache
	j := c.class(id)
	switch {
	case j == 0:
		return Sample{}, nil
	case c.classes[j-1].inPlace != nil:
		return c.Fetch(u.ctx, &u.request, id, nil)
	case c.classes[j-1].Store.Has(id):
		return Sample{}, nil
	}
	return c.FetchView(u.ctx, w, &u.request, id)
}

// Close ends the job's use: nothing more is read ahead for it, nor kept. Reads under way go on
// until the cache is closed.
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
