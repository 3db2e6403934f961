package catalog

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/hdmlp/hdmlp/internal/node/failure"
)

const (
	// leaveTimeout is for how long a job waits for the end of those that are leaving a cache which
	// does not suit it. The end takes milliseconds, unless reads hang.
	leaveTimeout = 5 * time.Second
	// noticeTime is after how long it is known that a process has left: its connection has ended, but
	// while processors are busy, the next job may be here first.
	noticeTime = 300 * time.Millisecond
	// checkInterval is after how long it looks again whether they are leaving.
	checkInterval = 100 * time.Millisecond
)

// AwaitEnd waits, if the dataset's cache does not suit a job, and all jobs that have it are leaving
// it, for their end: for some time, after which JoinCache joins that cache. It also waits while
// another job is opening or closing its caches. It is for before the job claims memory, which these
// may still have.
func (d *Dataset) AwaitEnd(ctx context.Context, j Join) error {
	e := d.entry
	for begun := time.Now(); ; {
		over, stays := e.unsuited(j)
		most := leaveTimeout
		if stays {
			most = noticeTime
		}
		if over == nil || time.Since(begun) >= most {
			break
		}
		select {
		case <-over:
		case <-time.After(checkInterval):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	done, err := e.take(ctx, j)
	if err != nil {
		return err
	}
	done()
	return nil
}

// take takes the turn, which done gives back: caches are not opened and closed at the same time.
func (e *entry) take(ctx context.Context, j Join) (done func(), err error) {
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
			return func() { <-e.turn }, nil
		case <-slow.C:
			if j.Waits != nil {
				j.Waits()
			}
		case <-timeout:
			return nil, failure.Input("another job on this dataset has been opening or closing its "+
				"caches for %v (start_timeout): check the disks of its cache_dir and of the dataset, "+
				"give start_timeout more, or set another HDMLP_SOCKET to have a daemon of its own "+
				"serve this job", j.Config.StartTimeout)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// unsuited returns what is closed at the end of the dataset's cache, if that does not suit a job,
// else nil; and whether a job that has the cache stays.
func (e *entry) unsuited(j Join) (over <-chan struct{}, stays bool) {
	e.mu.Lock()
	cached, madeBy := e.cache != nil, e.madeBy
	over = e.over
	users := slices.Collect(maps.Values(e.users))
	e.mu.Unlock()
	if !cached || j.Suits == nil || j.Suits(madeBy) {
		return nil, false
	}
	stay := func(stays func() bool) bool { return stays == nil || stays() }
	return over, slices.ContainsFunc(users, stay)
}
