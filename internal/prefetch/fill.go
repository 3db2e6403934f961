package prefetch

import (
	"cmp"
	"context"
	"slices"
	"sync"
)

func sortEpochs(r []EpochReport) {
	slices.SortFunc(r, func(a, b EpochReport) int { return cmp.Compare(a.Epoch, b.Epoch) })
}

// Filler brings samples into their storage classes ahead of time, in the order of
// the plan (thesis 3.2.2: by first access), while the staging buffers leave the
// source idle.
type Filler struct {
	cache  *Cache
	cancel context.CancelFunc
	fills  []*fill
}

// Fill starts filling the classes with their samples. read is called for each
// sample that was read from the source. A sample that can not be read
// is left to the batch that needs it: the policy for errors is the job's.
func (c *Cache) Fill(plan [][]int32, read func(bytes int64)) *Filler {
	ctx, cancel := context.WithCancel(context.Background())
	f := &Filler{cache: c, cancel: cancel}
	scratch := sync.Pool{New: func() any { return new([]byte) }}
	for _, ids := range plan {
		f.fills = append(f.fills, c.pool.addFill(ids, func(w *worker, id int) {
			var out outcome
			var err error
			if c.destined(id) {
				_, out, err = c.fetchInPlace(ctx, w, id)
			} else if j := c.class(id); j != 0 && !c.classes[j-1].Store.Has(id) {
				buf := scratch.Get().(*[]byte)
				size := int(c.index.Size(id))
				*buf = slices.Grow((*buf)[:0], size)[:size]
				out, err = c.fetchInto(ctx, w, id, *buf)
				scratch.Put(buf)
			}
			if err == nil && out.source {
				read(c.index.Size(id))
			}
		}))
	}
	return f
}

// Close ends the filling. Reads under way go on until the cache is closed.
func (f *Filler) Close() {
	f.cancel()
	for _, fill := range f.fills {
		f.cache.pool.removeFill(fill)
	}
}
