package objects

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/hdmlp/hdmlp/internal/source"
)

// askers is how many objects are asked for at once.
const askers = 32

// Many is a place that can be asked for many objects faster than for one after another.
type Many interface {
	// Stats calls found for every one of the names, as Stats does.
	Stats(ctx context.Context, names []string, found func(i int, o source.Object, err error)) error
}

// Stats calls found for every one of the names, with its position, and the object as it is now or
// the error of Stat. It does so from several goroutines. An error is ctx's, or that of a place
// which could not be asked.
func Stats(ctx context.Context, o Objects, names []string,
	found func(i int, o source.Object, err error),
) error {
	if many, ok := o.(Many); ok {
		return many.Stats(ctx, names, found)
	}
	return Each(ctx, len(names), func(i int) {
		object, err := o.Stat(ctx, names[i])
		found(i, object, err)
	})
}

// Each calls do for the numbers below n, several at once, until ctx is done. It returns ctx's
// error.
func Each(ctx context.Context, n int, do func(i int)) error {
	chunk := max(1, min(n/(8*askers), 64))
	var next atomic.Int64
	var asking sync.WaitGroup
	for range min(askers, (n+chunk-1)/chunk) {
		asking.Go(func() {
			for ctx.Err() == nil {
				first := int(next.Add(int64(chunk))) - chunk
				if first >= n {
					return
				}
				for i := first; i < min(first+chunk, n) && ctx.Err() == nil; i++ {
					do(i)
				}
			}
		})
	}
	asking.Wait()
	return context.Cause(ctx)
}
