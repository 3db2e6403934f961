package prefetch

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/hdmlp/hdmlp/internal/dataset"
	"github.com/hdmlp/hdmlp/internal/storageclass"
)

// Peers are the other nodes of the job: whoever answers for a sample reads it from the source once, keeps it, and
// gives it to the others. Methods are called from many goroutines.
type Peers interface {
	// Answers tells whether another node answers for the sample, and is worth asking now.
	Answers(id int) bool
	// Fetch brings the sample from there into dst, which is its own until it returns, and returns which node that was and
	// the digest that the node took when it read the sample from the source. After any error the sample is
	// read from the source: it may be slow, dead, or lie.
	Fetch(ctx context.Context, id int, dst []byte) (node int, digest uint32, err error)
}

// errElsewhere: the sample is on its way from another node, and who reads for a third does not wait for it.
var errElsewhere = errors.New("the node itself asks another one for the sample")

// read brings a sample that no class of the node holds: from the node that answers for it, or from the source. Who reads for
// another node never asks a third, so that no two nodes ever wait for each other.
func (c *Cache) read(ctx context.Context, w *worker, fl *flight, id int, dst []byte) (Place, storageclass.Origin, error) {
	if fl.remote {
		start := c.speed[Peer].begin()
		node, digest, err := w.peers.Fetch(ctx, id, dst)
		c.speed[Peer].end(start, len(dst), err)
		if err == nil {
			origin, err := c.cameFrom(node, id, digest)
			return Peer, origin, err
		}
		if ctx.Err() != nil {
			return Peer, storageclass.Origin{}, err
		}
	}
	origin, err := c.readSource(ctx, id, dst)
	return Source, origin, err
}

// Held returns a sample that lies in memory, where it lies, and its digest: valid until the cache's stores are closed.
func (c *Cache) Held(id int) (data []byte, digest uint32, ok bool) {
	if uint(id) >= uint(c.index.Len()) {
		return nil, 0, false
	}
	at, ok := c.locate(id)
	if !ok {
		return nil, 0, false
	}
	data, ok = c.classes[at.class].inPlace.View(id)
	digest, known := c.digests.of(id)
	return data, digest, ok && known
}

// Has tells whether any class holds the sample.
func (c *Cache) Has(id int) bool {
	return uint(id) < uint(c.index.Len()) && slices.ContainsFunc(c.classes, func(cl class) bool { return cl.Store.Has(id) })
}

// SourceLatency is how long a read from the source takes at the moment, on average; 0: there was none yet.
func (c *Cache) SourceLatency() time.Duration {
	m := &c.speed[Source]
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.recent
}

// Serve brings a sample for another node, and calls send with it and its digest, once. The bytes are valid until send returns. It reads
// the sample from the source if it has to, and keeps it as the plan says; at most as many reads are under way for
// others as for the node itself. source is how many bytes this very call read from the source. The error is dataset.ErrNoSample
// where the node asks another one for the sample itself.
func (c *Cache) Serve(ctx context.Context, id int, send func(data []byte, digest uint32) error) (source int64, err error) {
	if uint(id) >= uint(c.index.Len()) {
		return 0, dataset.ErrNoSample
	}
	select {
	case c.guests <- struct{}{}:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	w := c.guest.Get().(*worker)
	data, out, err := c.fetchView(ctx, w, id)
	<-c.guests
	if w.lost { // the watchdog gave the read up: it may still write to the scratch
		return 0, errGivenUp
	}
	if out.source {
		source = int64(len(data))
	}
	switch {
	case err == nil:
		digest, _ := c.digests.of(id) // known since the sample was fetched
		err = send(data, digest)
	case errors.Is(err, errElsewhere):
		err = dataset.ErrNoSample
	}
	if cap(w.scratch) > keptScratch {
		w.scratch = nil
	}
	c.guest.Put(w)
	return source, err
}

// keptScratch is how many bytes who reads for another node may keep for the next read.
const keptScratch = 1 << 20
