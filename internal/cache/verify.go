package cache

import (
	"context"
	"fmt"
	"slices"

	"github.com/hdmlp/hdmlp/internal/digest"
	"github.com/hdmlp/hdmlp/internal/printable"
)

// VerifyError says that bytes which were to be delivered are not those that the source has.
type VerifyError struct {
	Sample    int
	Path      string
	From      string // where the bytes were taken from
	Got, Want uint32 // digests
}

func (e *VerifyError) Error() string {
	return fmt.Sprintf("sample %d (%s): the bytes from %s (digest %08x) are not those of the file (%08x): "+
		"look for more with `hdmlp cache check` if there is a cache directory, and whether all nodes mount the same dataset", e.Sample, printable.Name(e.Path), e.From, e.Got, e.Want)
}

// Verify compares bytes that are to be delivered with the source's: those that this cache has read there
// itself, or reads for it now, once.
func (c *Cache) Verify(ctx context.Context, w *Worker, id int, data []byte, from Place) error {
	got := digest.Of(data)
	want, _ := c.digests.of(id)
	if !c.digests.own(id) {
		w.again = slices.Grow(w.again[:0], len(data))[:len(data)]
		file := w.again
		if _, err := c.readSource(ctx, id, file); err != nil {
			return err
		}
		want = digest.Of(file)
	}
	if got != want {
		return &VerifyError{Sample: id, Path: c.path(id), From: c.PlaceName(from), Got: got, Want: want}
	}
	return nil
}
