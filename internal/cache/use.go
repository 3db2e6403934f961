package cache

import (
	"context"
	"slices"
	"sync"

	"github.com/hdmlp/hdmlp/internal/pool"
)

// Use is one job's use of a Cache: what it wants kept there, what it reads ahead, and which other
// nodes it asks. Jobs that share a cache come and go independently. Its methods are safe for
// concurrent use, except Close, which must be the last call.
type Use struct {
	cache   *Cache
	request Request      // for reading ahead
	fills   []*pool.Fill // guarded by cache.uses
	plan    [][]int32    // guarded by cache.uses
	filled  [][]int32    // the plan that was passed to Fill; guarded by cache.uses
	read    func(bytes int64)

	ctx    context.Context // for filling
	cancel context.CancelFunc
}

// uses are the jobs that use a cache, oldest first.
type uses struct {
	sync.Mutex // guards list, and the plan and fills of its elements
	list       []*Use
}

// Use begins a job's use of the cache, which keeps nothing for it yet. peers are the job's other
// nodes; nil: the job has one node.
func (c *Cache) Use(peers Peers) *Use {
	u := &Use{cache: c, request: Request{Peers: peers}}
	u.ctx, u.cancel = context.WithCancel(context.Background())
	c.uses.Lock()
	defer c.uses.Unlock()
	c.uses.list = append(c.uses.list, u)
	return u
}

// Keep sets, by class, which samples the job wants kept, and replaces its earlier plan. Samples
// that a class already holds stay. If jobs want a sample in different classes, the oldest job
// decides.
func (u *Use) Keep(plan [][]int32) {
	u.cache.uses.Lock()
	defer u.cache.uses.Unlock()
	u.plan = plan
	u.cache.combine()
}

// combine merges the plans of all jobs. c.uses must be held.
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

// Fill brings the samples of a plan that was passed to Keep into their storage classes ahead of
// time, class by class in the plan's order (thesis 3.2.2: by first access), while the staging
// buffers leave the source idle. read is called for each sample that was read from the source. A
// sample that cannot be read is left to the batch that needs it, because the job's policy for
// errors decides.
func (u *Use) Fill(plan [][]int32, read func(bytes int64)) {
	c := u.cache
	c.uses.Lock()
	defer c.uses.Unlock()
	u.filled, u.read = plan, read
	for j, ids := range plan {
		u.fill(j, ids)
	}
}

// fill starts to bring the samples of one class. cache.uses must be held.
func (u *Use) fill(class int, ids []int32) {
	c, read := u.cache, u.read
	var ready func() bool // nil: memory, which never lets a worker wait
	if class < len(c.classes) && c.classes[class].writer != nil {
		ready = c.classes[class].writer.Room
	}
	u.fills = append(u.fills, c.pool.AddFill(ids, ready, func(w *Worker, id int) (abandoned bool) {
		s, err := u.bring(w, id)
		if err == nil && s.Read {
			read(c.index.Size(id))
		}
		s.Release()
		return err == ErrAbandoned
	}))
}

// refill brings what the plan gives to classes in memory again. cache.uses must be held.
func (u *Use) refill() {
	for j, ids := range u.filled {
		if j < len(u.cache.classes) && u.cache.classes[j].inPlace != nil {
			u.fill(j, ids)
		}
	}
}

// bring brings a sample into the class that is to hold it, unless there is none or it does so
// already. A sample for which its class has no capacity is not read.
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

// Close ends the job's use: nothing more is read ahead or kept for it. Reads in progress continue
// until the cache is closed.
func (u *Use) Close() {
	u.cancel()
	c := u.cache
	c.uses.Lock()
	defer c.uses.Unlock()
	for _, fill := range u.fills {
		c.pool.RemoveFill(fill)
	}
	c.uses.list = slices.DeleteFunc(c.uses.list, func(other *Use) bool { return other == u })
	c.combine()
}
