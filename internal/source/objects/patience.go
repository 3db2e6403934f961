package objects

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// patience is for how long requests that fail for the moment are made again.
type patience struct {
	most time.Duration
	once sync.Once
	tell func(string)
}

type patienceKey struct{}

// Patient returns a context in which a request that fails for the moment is made again for that
// long. tell gets one line when that begins.
func Patient(ctx context.Context, most time.Duration, tell func(string)) context.Context {
	return context.WithValue(ctx, patienceKey{}, &patience{most: most, tell: tell})
}

// Limit returns a context that ends when one request has taken as long as the context's patience
// lasts: a server may send a byte now and then for ever. cancel must be called.
func Limit(ctx context.Context) (limited context.Context, cancel context.CancelFunc) {
	p, ok := ctx.Value(patienceKey{}).(*patience)
	if !ok {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, p.most, fmt.Errorf("a request has taken more than %v",
		p.most))
}

// Again reports whether a request that has failed since begin is made again because of the
// context's patience.
func Again(ctx context.Context, begin time.Time, err error) bool {
	p, ok := ctx.Value(patienceKey{}).(*patience)
	if !ok || time.Since(begin) >= p.most {
		return false
	}
	p.once.Do(func() { p.tell(fmt.Sprintf("%v; it is asked again for up to %v", err, p.most)) })
	return true
}
