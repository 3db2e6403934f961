package cache

import (
	"context"
	"slices"

	"github.com/hdmlp/hdmlp/internal/cache/digests"
	"github.com/hdmlp/hdmlp/internal/digest"
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
	got := digest.Of(data)
	if want, _ := c.digests.Of(id); got != want {
		return &digests.VerifyError{
			Sample: id, Path: c.path(id), From: c.TierName(from), Got: got, Want: want,
		}
	}
	return nil
}

// readAgain reads a sample from the source into the worker's second buffer, in a flight as any
// read: if it hangs, it is given up. Or it waits for the sample's flight in progress, which may
// read the source too.
func (c *Cache) readAgain(ctx context.Context, w *Worker, r *Request, id int) error {
	size := int(c.index.Size(id))
	w.Again = slices.Grow(w.Again[:0], size)[:size]
	fl, leads, _ := c.flights.join(r, id, w.Again, false)
	if leads {
		_, err := c.readSource(ctx, r, fl, w.Again)
		return c.land(ctx, fl, Sample{Data: w.Again, From: Source}, err)
	}
	if err := fl.wait(ctx); err != nil {
		return err
	}
	if fl.err != nil && !retry(fl.err) {
		return fl.err
	}
	return nil
}
