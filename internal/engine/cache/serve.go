package cache

import (
	"context"
	"errors"

	"github.com/hdmlp/hdmlp/internal/engine/cache/flights"
	"github.com/hdmlp/hdmlp/internal/model/routing"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/store"
)

// Submit queues tasks for the workers. Each calls its Consumer's Bring once.
func (c *Cache) Submit(tasks []Task) { c.pool.Submit(tasks) }

// Copy is what another node is sent of a sample.
type Copy struct {
	Data   []byte
	Kind   uint8      // the form that Data is in; 0: as read
	Digest uint32     // of Data
	Hold   store.Hold // of Data; nil: none is needed
}

// copyOf returns what another node is sent of a sample that was fetched.
func (c *Cache) copyOf(id int, s *Sample) Copy {
	out := Copy{Data: s.Data, Kind: s.Kind, Digest: s.digest, Hold: s.hold}
	if s.Kind == 0 {
		out.Digest, _ = c.digests.Of(id) // known, because the sample was fetched
	} else {
		c.counts(s.From).sent.Add(1)
	}
	return out
}

// Held returns a sample that is in memory, or a form of it, if w takes one, without copying it. The
// bytes are valid until Hold is released.
func (c *Cache) Held(id int, w routing.Want) (held Copy, ok bool) {
	if uint(id) >= uint(c.index.Len()) {
		return held, false
	}
	if _, known := c.digests.Of(id); !known {
		return held, false
	}
	s, ok := c.view(id)
	if !ok && w.Most > 0 && !w.Unpack {
		s, ok, _ = c.formed(&Request{remote: true, Forms: true, want: w}, id, nil)
	}
	if !ok {
		return held, false
	}
	return c.copyOf(id, &s), true
}

// Serve brings a sample for another node, and calls send once with it, or with a form that a class
// holds, if w takes that, and whether this node had to wait for a read from the source. The bytes
// are valid until send returns. Serve reads the sample from the source if necessary, and keeps it
// if the plan assigns it to a class; other nodes may have at most as many reads in progress as the
// node itself. source is the number of bytes that this call read from the source. The error is
// source.ErrNoSample if this node is itself fetching the sample from another one, or has no memory
// to keep it: it would have to read the sample for each request.
func (c *Cache) Serve(ctx context.Context, id int, w routing.Want,
	send func(c Copy, read bool) error,
) (src int64, err error) {
	if uint(id) >= uint(c.index.Len()) || c.short(id) {
		return 0, source.ErrNoSample
	}
	select {
	case c.remoteReads <- struct{}{}:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	worker, r := c.remoteWorkers.Get().(*Worker), &c.remoteRequest
	if w.Most > 0 {
		r = &Request{remote: true, Forms: true, want: w}
	}
	s, err := c.FetchView(ctx, worker, r, id)
	<-c.remoteReads
	if s.Read {
		src = c.index.Size(id)
		for _, size := range s.Others {
			src += size
		}
	}
	switch {
	case err == nil:
		out := c.copyOf(id, &s)
		out.Hold = nil
		err = send(out, s.From == Source)
		s.Release()
	case err == ErrAbandoned:
		err = flights.ErrLeader
	case errors.Is(err, errElsewhere):
		err = source.ErrNoSample
	}
	worker.Trim(routing.MinBuffer)
	c.remoteWorkers.Put(worker)
	return src, err
}
