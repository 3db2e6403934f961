package catalog

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/hdmlp/hdmlp/internal/failure"
)

// leaving is for how long a job waits for the end of those that are leaving a cache which does not
// suit it. The end takes milliseconds, unless reads hang.
const leaving = 5 * time.Second

// readyFor waits until a job can join the dataset's cache, or make it, and takes the turn, which
// done gives back.
func (e *entry) readyFor(ctx context.Context, j Join) (done func(), err error) {
	enough := time.NewTimer(leaving)
	defer enough.Stop()
	for {
		if err := e.take(ctx, j); err != nil {
			return nil, err
		}
		done = func() { <-e.turn }
		over := e.unsuited(j)
		if over == nil {
			return done, nil
		}
		done()
		select {
		case <-over:
		case <-enough.C:
			j.Suits = nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// take takes the turn: caches are not opened and closed at the same time.
func (e *entry) take(ctx context.Context, j Join) error {
	slow := time.NewTimer(slowAfter)
	defer slow.Stop()
	var timeout <-chan time.Time
	if limit := j.Config.StartTimeout; limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		timeout = timer.C
	}
	for {
		select {
		case e.turn <- struct{}{}:
			return nil
		case <-slow.C:
			if j.Waits != nil {
				j.Waits()
			}
		case <-timeout:
			return failure.Input("another job on this dataset has been opening or closing its caches "+
				"for %v (start_timeout), as a cache directory or the source does not respond: check "+
				"their file systems, or set another HDMLP_SOCKET to have a daemon of its own serve "+
				"this job", j.Config.StartTimeout)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// unsuited returns what is closed at the end of the dataset's cache, if that does not suit a job
// and all others are leaving it; else nil.
func (e *entry) unsuited(j Join) <-chan struct{} {
	e.mu.Lock()
	cached, madeBy, over := e.cache != nil, e.madeBy, e.over
	users := slices.Collect(maps.Values(e.users))
	e.mu.Unlock()
	if !cached || j.Suits == nil || j.Suits(madeBy) {
		return nil
	}
	stays := func(stays func() bool) bool { return stays == nil || stays() }
	if slices.ContainsFunc(users, stays) {
		return nil
	}
	return over
}
