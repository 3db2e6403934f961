package breaker

import (
	"context"
	"sync"
	"time"
)

// deadline ends a context when a limit is over, unless the limit has grown by then: what the source
// takes may be a guess when a request begins, and measured when its limit is over. If the source
// turns out to be slow, the owner's read is in its queue, and one of this node would be after it.
type deadline struct {
	limit  func() time.Duration // as it is now
	cancel context.CancelFunc

	mu     sync.Mutex // guards the following
	timer  *time.Timer
	passed time.Duration // until timer fires
}

// limited returns a context that ends when the limit is over, which is first at the beginning. end
// must be called.
func limited(ctx context.Context, first time.Duration, limit func() time.Duration) (
	_ context.Context, end func(),
) {
	ctx, cancel := context.WithCancel(ctx)
	d := &deadline{limit: limit, cancel: cancel, passed: first}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.timer = time.AfterFunc(d.passed, d.fire)
	return ctx, d.end
}

// fire ends the context, or waits on if the limit has grown since.
func (d *deadline) fire() {
	d.mu.Lock()
	defer d.mu.Unlock()
	limit := d.limit()
	if limit <= d.passed {
		d.cancel()
		return
	}
	d.timer.Reset(limit - d.passed)
	d.passed = limit
}

func (d *deadline) end() {
	d.cancel()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.timer.Stop()
}
