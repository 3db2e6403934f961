package cache

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hdmlp/hdmlp/internal/engine/cache/pool"
	"github.com/hdmlp/hdmlp/internal/engine/cache/writeback"
	"github.com/hdmlp/hdmlp/internal/store"
)

// Use is one job's use of a Cache: which samples it keeps there, what it reads ahead, and which
// other nodes it asks. Jobs that share a cache come and go independently. Its methods are safe for
// concurrent use, except Close, which must be the last call.
type Use struct {
	cache   *Cache
	request Request // for reading ahead
	forms   bool    // the job takes forms (UseForms)
	worth   bool    // as UseForms says
	recipe  Recipe  // the same; nil: none

	// Guarded by cache.uses:
	fills  []*pool.Fill // by class; nil: none was begun
	plan   [][]int32
	filled [][]int32 // the plan that was passed to Fill
	read   func(bytes int64)
	counts []*fillCount  // of fills
	moved  chan struct{} // receives a token when one of them has changed

	ctx    context.Context // for filling
	cancel context.CancelFunc
}

// uses are the jobs that use a cache, oldest first.
type uses struct {
	sync.Mutex // guards the following, and the fields of Use that say so
	list       []*Use
}

// Use begins a job's use of the cache, which keeps nothing for it yet. peers are the job's other
// nodes; nil: the job has one node.
func (c *Cache) Use(peers Peers) *Use {
	return c.use(&Use{request: Request{Peers: peers, Forms: true, own: true}})
}

// UseForms is Use for a job that takes samples in other forms than as read: its Requests are of
// Forms, and it does not compare samples with the source's (Verify). While all jobs do, forms stay,
// and copies in memory become forms, as far as there is memory for it, if that is worth it for one
// of them: it reads samples often enough. What jobs on other nodes take does not matter. Forms may
// hold what recipe makes of samples, if all jobs have the same; nil: the job has none.
func (c *Cache) UseForms(peers Peers, worth bool, recipe Recipe) *Use {
	return c.use(&Use{
		request: Request{Peers: peers, Forms: true}, forms: true, worth: worth, recipe: recipe,
	})
}

// use begins a Use.
func (c *Cache) use(u *Use) *Use {
	u.cache, u.moved = c, make(chan struct{}, 1)
	u.ctx, u.cancel = context.WithCancel(context.Background())
	c.uses.Lock()
	defer c.uses.Unlock()
	c.uses.list = append(c.uses.list, u)
	c.settleForms()
	return u
}

// settleForms settles whether all jobs take forms, and which recipe all have. While there are no
// jobs, nothing changes. c.uses must be held.
func (c *Cache) settleForms() {
	if c.conversion == nil || len(c.uses.list) == 0 {
		return
	}
	all := !slices.ContainsFunc(c.uses.list, func(u *Use) bool { return !u.forms })
	worth := slices.ContainsFunc(c.uses.list, func(u *Use) bool { return u.worth })
	recipe := c.uses.list[0].recipe
	if slices.ContainsFunc(c.uses.list, func(u *Use) bool { return !sameRecipe(u.recipe, recipe) }) {
		recipe = nil
	}
	c.conversion.setForms(all, worth, recipe)
}

// inUse reports whether a job uses the cache.
func (c *Cache) inUse() bool {
	c.uses.Lock()
	defer c.uses.Unlock()
	return len(c.uses.list) > 0
}

// Keep sets, by class, which samples are kept for the job, and replaces its earlier plan. Samples
// that a class already holds stay. If jobs assign a sample to different classes, the oldest job
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
	c.conversion.poke()
}

// Fill brings the samples of a plan that was passed to Keep into their storage classes ahead of
// time, class by class in the plan's order (thesis 3.2.2: by first access), while the staging
// buffers leave the source idle. read is called for each sample that was read from the source. A
// sample that cannot be read is left to the batch that needs it, because the job's policy for
// errors decides. What an earlier call has not brought yet is left out.
func (u *Use) Fill(plan [][]int32, read func(bytes int64)) {
	c := u.cache
	c.uses.Lock()
	defer c.uses.Unlock()
	u.stopFills()
	u.filled = plan
	u.read = read
	u.fills, u.counts = make([]*pool.Fill, len(plan)), make([]*fillCount, len(plan))
	for j := range plan {
		u.fill(j)
	}
}

// fillCount counts what a fill has brought, or left to the batch that needs it.
type fillCount struct{ left, bytes atomic.Int64 }

// Filled waits until what Fill began has been brought, as far as it can be, and calls note with the
// bytes so far, and of all. It may be called by one goroutine at a time.
func (u *Use) Filled(ctx context.Context, note func(bytes, of int64)) error {
	u.cache.uses.Lock()
	var of int64
	for _, ids := range u.filled {
		for _, id := range ids {
			of += u.cache.index.Size(int(id))
		}
	}
	u.cache.uses.Unlock()
	for {
		var left, bytes int64
		u.cache.uses.Lock()
		for _, count := range u.counts {
			left += count.left.Load()
			bytes += count.bytes.Load()
		}
		u.cache.uses.Unlock()
		note(bytes, of)
		if left <= 0 {
			return nil
		}
		select {
		case <-u.moved:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// HoldFills has what Fill began read nothing more until release is called, or the time is over.
func (c *Cache) HoldFills(most time.Duration) (release func()) { return c.pool.Hold(most) }

// stopFills ends what Fill has begun. cache.uses must be held.
func (u *Use) stopFills() {
	u.cache.pool.RemoveFills(u.fills...)
	u.fills = nil
}

// fill starts to bring the samples of one class, from the first one on. cache.uses must be held.
func (u *Use) fill(j int) {
	c, read := u.cache, u.read
	c.pool.RemoveFills(u.fills[j])
	writers := c.writers(j)
	count := &fillCount{}
	count.left.Store(int64(len(u.filled[j])))
	u.counts[j] = count
	ready := func(id int) bool { return writers.Reserve(id, c.index.Size(id)) }
	run := func(w *Worker, id int) (abandoned bool) {
		s, err := u.bring(w, id)
		writers.Unreserve(id)
		if err == nil && s.Read {
			read(c.index.Size(id))
		}
		for _, size := range s.Others {
			read(size)
		}
		s.Release()
		count.bytes.Add(c.index.Size(id))
		count.left.Add(-1)
		select {
		case u.moved <- struct{}{}:
		default:
		}
		return err == ErrAbandoned
	}
	u.fills[j] = c.pool.AddFill(u.filled[j], pool.Filling{Run: run, Ready: ready})
}

// writers returns those of the classes into which what is read for class j is written: that class,
// if it is not in memory, and those that keep everything.
func (c *Cache) writers(j int) (all writeback.Writers) {
	for i := range c.classes {
		if cl := &c.classes[i]; cl.writer != nil && (cl.KeepAll || i == j) {
			all = append(all, cl.writer)
		}
	}
	return all
}

// refill brings what the plan gives to classes in memory again. cache.uses must be held.
func (u *Use) refill() {
	for j := range min(len(u.filled), len(u.cache.classes)) {
		if u.cache.classes[j].inPlace != nil {
			u.fill(j)
		}
	}
}

// bring brings a sample into the class that is to hold it, unless there is none or it does so
// already. A sample for which its class has no capacity, or which takes no more, is not read.
func (u *Use) bring(w *Worker, id int) (Sample, error) {
	c := u.cache
	j := c.class(id)
	switch {
	case j == 0:
		return Sample{}, nil
	case c.classes[j-1].inPlace != nil:
		r := u.request
		r.inPlace = true
		return c.FetchView(u.ctx, w, &r, id)
	case c.classes[j-1].Store.Has(id):
		return Sample{}, nil
	}
	if r, ok := c.classes[j-1].Store.(store.Refuser); ok && r.Refuses() != "" {
		return Sample{}, nil
	}
	return c.FetchView(u.ctx, w, &u.request, id)
}

// Stop ends what reads ahead or makes room for the job, so that its planner need not be waited for.
// Close must still be called.
func (u *Use) Stop() { u.cancel() }

// Close ends the job's use: nothing more is read ahead or kept for it, and Release returns. Reads
// in progress continue until the cache is closed.
func (u *Use) Close() {
	u.cancel()
	c := u.cache
	c.uses.Lock()
	defer c.uses.Unlock()
	u.stopFills()
	c.uses.list = slices.DeleteFunc(c.uses.list, func(other *Use) bool { return other == u })
	c.settleForms()
	c.combine()
}
