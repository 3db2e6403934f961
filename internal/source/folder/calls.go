package folder

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hdmlp/hdmlp/internal/source"
)

// calls monitors the system calls of one Open. A call that hangs, as on a network file system whose
// server is down, cannot be cancelled, so Open makes all calls in goroutines that it abandons in
// that case: they end when the call returns, or with the process, and release what they hold.
//
// A caller costs a scan two uncontended locks per call and does not read the clock: await compares
// each call with the one at its previous check, so it notices a hang up to one check late.
type calls struct {
	root string
	opts Options

	mu      sync.Mutex // guards the following
	callers []*caller
	told    *caller // its call is the one that was passed to Slow
	toldOf  uint64
}

// Defaults of Options.
const (
	defaultTimeout   = time.Minute
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

// caller is a goroutine that makes system calls, one at a time.
type caller struct {
	mu        sync.Mutex // guards the following
	number    uint64     // of calls begun
	busy      bool
	op        string
	dir, name string // the call's object: name in dir, or dir itself

	seen  uint64 // only for await: the call at its previous check
	since time.Time
}

func newCalls(root string, opts Options) *calls {
	if opts.Timeout <= 0 {
		opts.Timeout = defaultTimeout
	}
	if opts.SlowAfter <= 0 {
		opts.SlowAfter = defaultSlowAfter
	}
	return &calls{root: root, opts: opts}
}

// caller returns a new caller, whose calls are monitored.
func (w *calls) caller() *caller {
	c := new(caller)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.callers = append(w.callers, c)
	return c
}

// Begin records the start of a call: its name, and its object.
func (c *caller) Begin(op, dir, name string) {
	c.mu.Lock()
	c.number++
	c.busy = true
	c.op = op
	c.dir = dir
	c.name = name
	c.mu.Unlock()
}

// End records that the call has returned.
func (c *caller) End() {
	c.mu.Lock()
	c.busy = false
	c.mu.Unlock()
}

// hang is a system call that has not returned.
type hang struct {
	caller *caller
	number uint64
	op     string
	path   string
	since  time.Time
}

// longest returns the call that has been in progress longest, without the time lost since the
// previous check.
func (w *calls) longest(now time.Time, lost time.Duration) (h hang, ok bool) {
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
func (w *calls) path(dir, name string) string {
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(w.root, dir)
	}
	return filepath.Join(dir, name)
}

// open calls do, which opens the folder, and waits for it as await does. A folder that is opened
// too late is closed.
func (w *calls) open(ctx context.Context,
	do func(context.Context, *calls) (*Folder, error),
) (*Folder, error) {
	if w.opts.Left == nil {
		w.opts.Left = new(Left)
	}
	if n := w.opts.Left.n.Load(); n >= mostLeft {
		return nil, &source.Error{
			Path: w.root, Kind: source.ErrUnavailable,
			Hint: fmt.Sprintf("not tried, because %d system calls of earlier attempts have not "+
				"returned: check whether the datasets' file systems still respond", n),
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // abandoned goroutines end as soon as they can
	var (
		f    *Folder
		err  error
		done = make(chan struct{})
	)
	go func() { // ends before open returns, or when the hanging system call returns
		f, err = do(ctx, w)
		close(done)
	}()
	late := w.await(ctx, done)
	if late == nil {
		return f, err
	}
	n := w.busy()
	w.opts.Left.n.Add(n)
	go func() { // ends after the goroutine above
		<-done
		w.opts.Left.n.Add(-n)
		if f != nil {
			_ = f.Close()
		}
	}()
	return nil, late
}

// busy returns how many system calls are in progress.
func (w *calls) busy() (n int64) {
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
func (w *calls) await(ctx context.Context, done <-chan struct{}) error {
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
func (w *calls) tell(h hang) {
	w.mu.Lock()
	first := w.told != h.caller || w.toldOf != h.number
	w.told, w.toldOf = h.caller, h.number
	w.mu.Unlock()
	if first && w.opts.Slow != nil {
		w.opts.Slow(h.op, h.path, h.since)
	}
}

func (w *calls) hangs(h hang, waited time.Duration) error {
	return &source.Error{
		Path: h.path, Kind: source.ErrUnavailable,
		Hint: fmt.Sprintf("%s has not returned for %v, and source_timeout is %v: check whether "+
			"its file system still responds",
			h.op, waited.Round(100*time.Millisecond), w.opts.Timeout),
	}
}
