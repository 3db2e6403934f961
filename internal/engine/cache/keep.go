package cache

import (
	"errors"
	"math"
	"sync/atomic"
	"time"

	"github.com/hdmlp/hdmlp/internal/model/meter"
	"github.com/hdmlp/hdmlp/internal/model/routing"
	"github.com/hdmlp/hdmlp/internal/report"
)

// keeping is what it takes to keep samples in a class of memory: the system must supply pages,
// which may take longer than the source takes to deliver the sample.
type keeping struct {
	supply meter.Meter // of memory for samples
	// What was not kept, because that would not have repaid:
	samples, bytes atomic.Int64
}

// worthwhile is for how many seconds memory must have been supplied before it is asked whether that
// repays: when a job begins, it is late whatever it keeps.
const worthwhile = 1.0

var errNotSupplied = errors.New("no memory was supplied")

// Passed returns what was read for class j (from 0) and not kept, because memory for it would have
// taken longer than it saves.
func (c *Cache) Passed(j int) report.Amount {
	k := c.classes[j].keeping
	return report.Amount{Samples: k.samples.Load(), Bytes: k.bytes.Load()}
}

// keeps reports whether a sample that is fetched for a request is to be brought into its class of
// memory: not if it is late then, and memory for it takes longer than it saves in the epochs to
// come (routing.Keeps). Then it is only read. While all processors are busy, every sample is
// late, as supplying memory is work of theirs.
//
// What is brought ahead of time is kept all the same, as its read would be in vain, and for that
// waits for spare time instead (Use.Fill). Of the job's later reads, those of this node count:
// other nodes may read the source as well, and do if that is faster.
func (c *Cache) keeps(r *Request, id int, to *class) bool {
	now, k := time.Now(), to.keeping
	if r.Consumer != nil {
		c.later.Store(int64(r.Later))
	}
	if k.supply.Speed(now).Busy < worthwhile {
		return true
	}
	due := math.Inf(1)
	switch {
	case c.Busy():
		due = 0
	case r.Due != nil:
		due = r.Due(now)
	}
	size, nodes := c.index.Size(id), 1
	if r.Peers != nil {
		nodes = r.Peers.Nodes()
	}
	supply := k.supply.Takes(size)
	spares := 1 + float64(c.later.Load())/float64(nodes)
	if routing.Keeps(due, supply, c.meters[Source].Arrival(now, size),
		c.reading.Takes(size), spares) {
		c.passes.Store(0)
		return true
	}
	c.passes.Store(now.Add(remembered).UnixNano())
	if c.resuming.CompareAndSwap(false, true) {
		time.AfterFunc(remembered, c.resume)
	}
	return r.Consumer == nil && !r.remote || k.supply.Explore(now, supply)
}

// Destined reports whether a sample that is fetched now is to be held by a class from which it can
// be delivered.
func (c *Cache) Destined(r *Request, id int) bool {
	to := c.destination(id)
	return to != nil && c.keeps(r, id, to)
}

// remembered is for how long it counts that memory for a late sample did not repay.
const remembered = time.Second

// resume continues fills that have waited because memory did not repay, once that is forgotten.
func (c *Cache) resume() {
	if c.passing() {
		time.AfterFunc(remembered, c.resume)
		return
	}
	c.resuming.Store(false)
	if c.passing() && c.resuming.CompareAndSwap(false, true) { // since it was asked
		time.AfterFunc(remembered, c.resume)
		return
	}
	c.pool.Continue()
}

// Busy reports whether all processors are busy (Options.Busy).
func (c *Cache) Busy() bool { return c.busy != nil && c.busy() }

// passing reports whether memory for a late sample did not repay lately.
func (c *Cache) passing() bool { return time.Now().UnixNano() < c.passes.Load() }
