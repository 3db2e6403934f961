package cache

import (
	"context"
	"slices"

	"github.com/hdmlp/hdmlp/internal/cache/digests"
	"github.com/hdmlp/hdmlp/internal/digest"
)

// Verify compares bytes about to be delivered with the source's: with the digest of this cache's
// own read, or, if there was none, by reading the sample from the source now.
func (c *Cache) Verify(ctx context.Context, w *Worker, id int, data []byte, from Tier) error {
	got := digest.Of(data)
	want, _ := c.digests.Of(id)
	if !c.digests.Own(id) {
		w.Again = slices.Grow(w.Again[:0], len(data))[:len(data)]
		file := w.Again
		if _, err := c.readSource(ctx, &c.remoteRequest, id, file, nil); err != nil {
			return err
		}
		want = digest.Of(file)
	}
	if got != want {
		return &digests.VerifyError{
			Sample: id, Path: c.path(id), From: c.TierName(from), Got: got, Want: want,
		}
	}
	return nil
}
