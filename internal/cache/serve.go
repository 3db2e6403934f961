package cache

import (
	"context"
	"errors"

	"github.com/hdmlp/hdmlp/internal/dataset"
)

// Submit has the workers bring samples for consumers: each calls its Consumer's Bring, once.
func (c *Cache) Submit(tasks []Task) { c.pool.submit(tasks) }

// Held returns a sample that lies in memory, where it lies, and its digest: valid until the cache's
// stores are closed.
func (c *Cache) Held(id int) (data []byte, digest uint32, ok bool) {
	if uint(id) >= uint(c.index.Len()) {
		return nil, 0, false
	}
	if _, data, ok = c.view(id); !ok {
		return nil, 0, false
	}
	digest, known := c.digests.of(id)
	return data, digest, known
}

// Serve brings a sample for another node, and calls send with it and its digest, once. The bytes
// are valid until send returns. It reads the sample from the source if it has to, and keeps it as
// the plan says; at most as many reads are under way for others as for the node itself. source is
// how many bytes this very call read from the source. The error is dataset.ErrNoSample where the
// node asks another one for the sample itself.
func (c *Cache) Serve(ctx context.Context, id int,
	send func(data []byte, digest uint32) error,
) (source int64, err error) {
	if uint(id) >= uint(c.index.Len()) {
		return 0, dataset.ErrNoSample
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
		source = c.index.Size(id)
	}
	switch {
	case err == nil:
		digest, _ := c.digests.of(id) // known since the sample was fetched
		err = send(s.Data, digest)
	case err == ErrAbandoned:
		err = errGivenUp
	case errors.Is(err, errElsewhere):
		err = dataset.ErrNoSample
	}
	if cap(w.buffer) > keptBuffer {
		w.buffer = nil
	}
	c.remoteWorkers.Put(w)
	return source, err
}

// keptBuffer is how many bytes of buffer are kept per remote-read worker from one read to the next.
const keptBuffer = 1 << 20
