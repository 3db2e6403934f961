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

// Held returns a sample that is in memory, without copying it, and its digest. The bytes are valid
// until hold is released.
func (c *Cache) Held(id int) (data []byte, digest uint32, hold store.Hold, ok bool) {
	if uint(id) >= uint(c.index.Len()) {
		return nil, 0, nil, false
	}
	digest, known := c.digests.Of(id)
	if !known {
		return nil, 0, nil, false
	}
	s, ok := c.view(id)
	return s.Data, digest, s.hold, ok
}

// Serve brings a sample for another node, and calls send once with it and its digest, and whether
// this node had to wait for a read from the source. The bytes are valid until send returns. Serve
// reads the sample from the source if necessary, and keeps it if the plan assigns it to a class;
// other nodes may have at most as many reads in progress as the node itself. source is the number
// of bytes that this call read from the source. The error is source.ErrNoSample if this node is
// itself fetching the sample from another one, or has no memory to keep it: it would have to read
// the sample for each request.
func (c *Cache) Serve(ctx context.Context, id int,
	send func(data []byte, digest uint32, read bool) error,
) (src int64, err error) {
	if uint(id) >= uint(c.index.Len()) || c.short(id) {
		return 0, source.ErrNoSample
	}
	select {
	case c.remoteReads <- struct{}{}:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	w := c.remoteWorkers.Get().(*Worker)
	s, err := c.FetchView(ctx, w, &c.remoteRequest, id)
	<-c.remoteReads
	if s.Read {
		src = c.index.Size(id)
		for _, size := range s.Others {
			src += size
		}
	}
	switch {
	case err == nil:
		digest, _ := c.digests.Of(id) // known, because the sample was fetched
		err = send(s.Data, digest, s.From == Source)
		s.Release()
	case err == ErrAbandoned:
		err = flights.ErrLeader
	case errors.Is(err, errElsewhere):
		err = source.ErrNoSample
	}
	w.Trim(routing.MinBuffer)
	c.remoteWorkers.Put(w)
	return src, err
}
