package cache

import (
	"context"
	"slices"

	"github.com/hdmlp/hdmlp/internal/engine/cache/flights"
)

// Verify compares bytes about to be delivered with the source's: with the digest of this cache's
// own read, or, if there was none, by reading the sample from the source now. It returns
// ErrAbandoned if that read was given up.
func (c *Cache) Verify(ctx context.Context, w *Worker, r *Request, id int, data []byte,
	from Tier,
) error {
	for !c.digests.Own(id) {
		if err := c.readAgain(ctx, w, r, id); err != nil {
			return err
		}
	}
	return c.digests.Compare(id, data, c.path, c.TierName(from))
}

// readAgain reads a sample from the source into the worker's second buffer, in a flight as any
// read: if it hangs, it is given up. Or it waits for the sample's flight in progress, which may
// read the source too.
func (c *Cache) readAgain(ctx context.Context, w *Worker, r *Request, id int) error {
	size := int(c.index.Size(id))
	w.Again = slices.Grow(w.Again[:0], size)[:size]
	fl, leads, _ := c.flights.Join(flights.Fetch[*Request]{
		ID: id, By: r, Buffer: w.Again, Urgent: r.urgent(),
	})
	if leads {
		_, _, err := c.readSource(ctx, r, fl, w.Again)
		return c.land(ctx, fl, Sample{Data: w.Again, From: Source}, err)
	}
	_, failed, err := fl.Wait(ctx)
	if err == nil && failed != nil && !retry(failed) {
		return failed
	}
	return err
}
