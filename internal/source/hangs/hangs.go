// Package hangs opens datasets in system calls that may hang, as on a network file system whose
// server is down, and cannot be cancelled: it watches them, and gives up an opening in which one
// does.
package hangs

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hdmlp/hdmlp/internal/source"
)

// Options are the options of a Monitor.
type Options struct {
	// Timeout is how long one system call may take; 0 means a minute.
	Timeout time.Duration
	// SlowAfter is the time after which a system call counts as slow; 0 means 10 seconds.
	SlowAfter time.Duration
	// Slow, if not nil, is called while a system call is slow, with its name, its path and its
	// start time.
	Slow func(op, path string, since time.Time)
	// Left, if not nil, counts the hanging system calls of all that share it, which bounds the
	// threads that further attempts block.
	Left *Left
}

// Monitor watches the system calls of one opening. All calls are made in goroutines that are
// abandoned if one hangs: they end when the call returns, or with the process, and release what
// they hold.
//
// A caller costs two uncontended locks per call and does not read the clock: await compares each
// call with the one at its previous check, so it notices a hang up to one check late.
type Monitor struct {
	root string
	opts Options

	mu      sync.Mutex // guards the following
	callers []*Caller
	told    *Caller // its call is the one that was passed to Slow
	toldOf  uint64
}

// Defaults of Options.
const (
	DefaultTimeout   = time.Minute
	defaultSlowAfter = 10 * time.Second

	// farewell is how long a cancelled Open waits for its goroutines before it assumes that a
	// system call hangs.
	farewell = 250 * time.Millisecond
)

// Left counts the system calls that were abandoned because they hang. The zero value is ready to
// use. It is safe for concurrent use.
type Left struct{ n atomic.Int64 }

// mostLeft is how many system calls may hang: each blocks a thread, of which Go allows a process
// ten thousand.
const mostLeft = 1024

// Caller is a goroutine that makes system calls, one at a time.
type Caller struct {
	mu        sync.Mutex // guards the following
	number    uint64     // of calls begun
	busy      bool
	op        string
	dir, name string // the call's object: name in dir, or dir itself

	seen  uint64 // only for await: the call at its previous check
	since time.Time
}

// New returns a monitor for the opening of the dataset at root.
func New(root string, opts Options) *Monitor {
	if opts.Timeout <= 0 {
		opts.Timeout = DefaultTimeout
	}
	if opts.SlowAfter <= 0 {
		opts.SlowAfter = defaultSlowAfter
	}
	return &Monitor{root: root, opts: opts}
}

// Caller returns a new caller, whose calls are watched.
func (w *Monitor) Caller() *Caller {
	c := new(Caller)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.callers = append(w.callers, c)
	return c
}

// Begin records the start of a call: its name, and its object.
func (c *Caller) Begin(op, dir, name string) {
	c.mu.Lock()
	c.number++
	c.busy = true
	c.op = op
	c.dir = dir
	c.name = name
	c.mu.Unlock()
}

// End records that the call has returned.
func (c *Caller) End() {
	c.mu.Lock()
	c.busy = false
	c.mu.Unlock()
}

// hang is a system call that has not returned.
type hang struct {
	caller *Caller
	number uint64
	op     string
	path   string
	since  time.Time
}

// longest returns the call that has been in progress longest, without the time lost since the
// previous check.
func (w *Monitor) longest(now time.Time, lost time.Duration) (h hang, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.callers {
		c.mu.Lock()
		if c.busy {
			if c.seen != c.number {
				c.seen, c.since = c.number, now
			} else {
				c.since = c.since.Add(lost)
			}
			if !ok || c.since.Before(h.since) {
				h, ok = hang{c, c.number, c.op, w.path(c.dir, c.name), c.since}, true
			}
		}
		c.mu.Unlock()
	}
	return h, ok
}

// path returns the path of name in dir, which may be relative to the root.
func (w *Monitor) path(dir, name string) string {
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(w.root, dir)
	}
	return filepath.Join(dir, name)
}

// Open calls do, which opens something, and waits for it as await does. What is opened too late is
// closed.
func Open[T io.Closer](ctx context.Context, w *Monitor,
	do func(context.Context, *Monitor) (T, error),
) (T, error) {
	if w.opts.Left == nil {
		w.opts.Left = new(Left)
	}
	var none T
	if n := w.opts.Left.n.Load(); n >= mostLeft {
		return none, &source.Error{
			Path: w.root, Kind: source.ErrUnavailable,
			Hint: fmt.Sprintf("not tried, because %d system calls of earlier attempts have not "+
				"returned: check whether the datasets' file systems still respond", n),
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // abandoned goroutines end as soon as they can
	var (
		opened T
		err    error
		done   = make(chan struct{})
	)
	go func() { // ends before Open returns, or when the hanging system call returns
		opened, err = do(ctx, w)
		close(done)
	}()
	late := w.await(ctx, done)
	if late == nil {
		return opened, err
	}
	n := w.busy()
	w.opts.Left.n.Add(n)
	go func() { // ends after the goroutine above
		<-done
		w.opts.Left.n.Add(-n)
		if err == nil {
			_ = opened.Close()
		}
	}()
	return none, late
}

// busy returns how many system calls are in progress.
func (w *Monitor) busy() (n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.callers {
		c.mu.Lock()
		if c.busy {
			n++
		}
		c.mu.Unlock()
	}
	return n
}

// await waits until done is closed. It returns an error if a system call hangs for longer than the
// timeout, or shortly after ctx ends.
func (w *Monitor) await(ctx context.Context, done <-chan struct{}) error {
	period := min(max(min(w.opts.SlowAfter, w.opts.Timeout)/40, time.Millisecond),
		100*time.Millisecond)
	look := time.NewTicker(period)
	defer look.Stop()
	last := time.Now()
	cancelled := ctx.Done()
	var expired <-chan time.Time
	for {
		select {
		case <-done:
			return nil
		case <-cancelled:
			cancelled = nil
			timer := time.NewTimer(farewell)
			defer timer.Stop()
			expired = timer.C
		case <-expired:
			return fmt.Errorf("scan %s: %w", w.root, ctx.Err())
		case now := <-look.C:
			// Time in which the process was stopped, or starved, does not count.
			var lost time.Duration
			if gap := now.Sub(last); gap > 10*period {
				lost = gap
			}
			last = now
			h, ok := w.longest(now, lost)
			if !ok {
				continue
			}
			waited := now.Sub(h.since)
			if waited >= w.opts.Timeout {
				return w.hangs(h, waited)
			}
			if waited >= w.opts.SlowAfter {
				w.tell(h)
			}
		}
	}
}

// tell passes one slow call to Slow, and others only after that call has returned.
func (w *Monitor) tell(h hang) {
	w.mu.Lock()
	first := w.told != h.caller || w.toldOf != h.number
	w.told, w.toldOf = h.caller, h.number
	w.mu.Unlock()
	if first && w.opts.Slow != nil {
		w.opts.Slow(h.op, h.path, h.since)
	}
}

func (w *Monitor) hangs(h hang, waited time.Duration) error {
	return &source.Error{
		Path: h.path, Kind: source.ErrUnavailable,
		Hint: fmt.Sprintf("%s has not returned for %v, and source_timeout is %v: check whether "+
			"its file system still responds",
			h.op, waited.Round(100*time.Millisecond), w.opts.Timeout),
	}
}
