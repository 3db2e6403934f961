package cache

import (
	"context"

	"github.com/hdmlp/hdmlp/internal/engine/cache/flights"
	"github.com/hdmlp/hdmlp/internal/source"
)

// # Samples that are read together
//
// A read of a small sample brings those beside it in its object that this node is to keep in memory
// and does not have yet. Each is in a flight of its own meanwhile, as if it were read alone, so
// that it is read once. If the request fails, the wanted sample is read alone, and the others are
// by whatever needs them.
//
// The samples of a block of the object are read together, and no others: so no rests of a few
// samples are left between those that are held.
const (
	// block is how many bytes lie in a block. All requests in progress share the bandwidth, so that a
	// request of it takes about block*streams/bandwidth longer than one of a few bytes: with 16
	// streams, which is what a cache begins with, and 50 MB/s, 20 ms, which is what a request to an
	// object store takes anyway. Of more streams than that the cache finds that they bring no more.
	block = 64 << 10
	// mostBetween is how many bytes may lie between two samples, such as the header of a member of a
	// tar file. 4 KiB cost less than the request that they save, in time (20 us at 200 MB/s) and in
	// money (0.36 of the price of a request, where a GB that leaves the store costs 0.09 dollars and
	// 1000 requests 0.001).
	mostBetween = 4 << 10
	// tiny is the size of samples, in bytes, of which a request for each takes longer than the link
	// does, so that they are read together whatever lies between. Of larger ones from a store, what
	// lies between is at most the betweenShare-th part of what is read: one in 50 bytes.
	tiny         = 8 << 10
	betweenShare = 50
	// briefly is how many seconds a block may take wherever it lies. On a disk a request takes less,
	// but 10 us of a processor and a wait, of which a block needs one instead of 16.
	briefly = 1e-3
)

// run is samples that follow one another, and that one request reads.
type run struct {
	first   int
	flights []*flight // of each; nil: of the wanted one, which has its own already
	sizes   []int64   // of those that are not the wanted one
	bytes   int64     // the sum of these
}

// readRun reads a sample from the source, with those beside it that it can bring. others are the
// sizes of these; grow is called with their number and bytes before they are read.
func (c *Cache) readRun(ctx context.Context, id int, dst []byte,
	grow func(others, bytes int64),
) (stamp source.Stamp, others []int64, err error) {
	x, ok := c.runOf(id)
	if !ok {
		stamp, err = c.source.Read(ctx, id, dst)
		return stamp, nil, err
	}
	more := int64(len(x.sizes))
	grow(more, x.bytes)
	dsts, room := make([][]byte, len(x.flights)), make([]byte, x.bytes)
	for i := range dsts {
		dsts[i] = dst
		if x.flights[i] != nil {
			size := c.index.Size(x.first + i)
			dsts[i], room = room[:size:size], room[size:]
		}
	}
	stamps, err := c.adjoins.ReadRun(ctx, x.first, dsts)
	for i, fl := range x.flights {
		if fl == nil {
			continue
		}
		failed := error(flights.ErrLeader)
		if err == nil {
			failed = c.keepOther(x.first+i, dsts[i], stamps[i])
		}
		c.flights.Land(fl, nil, found{tier: Source}, failed)
	}
	if err == nil {
		c.sourceSamples.Add(more)
		c.sourceBytes.Add(x.bytes)
		return stamps[id-x.first], x.sizes, nil
	}
	grow(-more, -x.bytes)
	if ctx.Err() == nil {
		stamp, err = c.source.Read(ctx, id, dst)
	}
	return stamp, nil, err
}

// runOf returns the samples that a read of one can bring; ok is false if there are no others.
func (c *Cache) runOf(id int) (x run, ok bool) {
	if c.adjoins == nil || c.planned.Load() == nil {
		return x, false
	}
	at, ok := c.adjoins.Span(id)
	// Of a slow link a block would take longer than the request.
	known := c.meters[Source].Known()
	takes := known.Queued * block / 1e6
	if !ok || at.End-at.Begin > block/2 || takes > max(known.Latency, briefly) {
		return x, false
	}
	x = run{first: id, flights: []*flight{nil}}
	inside := func(n int, s source.Span, between int64) *flight {
		if s.Object != at.Object || s.Begin/block != at.Begin/block || between < 0 ||
			between > mostBetween {
			return nil
		}
		counts := c.requests && s.End-s.Begin > tiny
		if counts && !c.spend(between) {
			return nil
		}
		fl := c.claim(n)
		if fl != nil {
			x.sizes = append(x.sizes, c.index.Size(n))
			x.bytes += c.index.Size(n)
		} else if counts {
			c.between.Add(-between)
		}
		return fl
	}
	for begin := at.Begin; x.first > 0; x.first-- {
		s, ok := c.adjoins.Span(x.first - 1)
		fl := (*flight)(nil)
		if ok {
			fl = inside(x.first-1, s, begin-s.End)
		}
		if fl == nil {
			break
		}
		begin = s.Begin
		x.flights = append([]*flight{fl}, x.flights...)
	}
	for n, end := id+1, at.End; n < c.index.Len(); n++ {
		s, ok := c.adjoins.Span(n)
		fl := (*flight)(nil)
		if ok {
			fl = inside(n, s, s.Begin-end)
		}
		if fl == nil {
			break
		}
		end = s.End
		x.flights = append(x.flights, fl)
	}
	return x, len(x.sizes) > 0
}

// spend reports whether so many bytes may be read between two samples, and counts them if so.
func (c *Cache) spend(between int64) bool {
	if c.between.Add(between)*betweenShare <= c.sourceBytes.Load() {
		return true
	}
	c.between.Add(-between)
	return false
}

// claim begins a flight for a sample that a read of another one is to bring; nil: it is not to.
func (c *Cache) claim(id int) *flight {
	if c.destination(id) == nil || c.Has(id) {
		return nil
	}
	// Like a read for another node, it has no worker and no consumer of its own.
	fl, leads, _ := c.flights.Join(flights.Fetch[*Request]{
		ID: id, By: &c.remoteRequest, Urgent: true,
	})
	if !leads {
		return nil
	}
	// The flight before this one may have brought it, and Release waits only for those that it sees.
	if c.destination(id) == nil || c.Has(id) {
		c.flights.Land(fl, nil, found{}, ErrNoCapacity)
		return nil
	}
	return fl
}

// keepOther puts a sample that the read of another one has brought into its class. After an error
// it is read alone, which finds the reason.
func (c *Cache) keepOther(id int, data []byte, stamp source.Stamp) error {
	origin, err := c.sourceOrigin(id, data, stamp)
	if err != nil {
		return ErrNoCapacity
	}
	c.keep(id, data, origin)
	to := c.destination(id)
	if to == nil || to.Store.Put(id, data, origin) != nil {
		return ErrNoCapacity
	}
	c.confirmKept(to, id, origin)
	return nil
}
