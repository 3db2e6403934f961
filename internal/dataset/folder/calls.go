package folder

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hdmlp/hdmlp/internal/dataset"
)

// calls watches over the system calls of one Open. One that hangs, as on a
// network file system whose server is gone, cannot be cancelled, so Open does all
// of them in goroutines that it leaves behind in that case: they end when the call
// returns, or with the process, and give back what they hold.
//
// A caller costs a scan two uncontended locks per call and reads no clock: the
// watch notices that a call is the same one as at its last look. So it learns
// of a hang up to one look late.
type calls struct {
	root string
	opts Options

	mu      sync.Mutex // guards the following
	callers []*caller
	told    *caller // its call is the one that Slow was told of
	toldOf  uint64
}

// Times for Options that say nothing.
const (
	defaultTimeout   = time.Minute
	defaultSlowAfter = 10 * time.Second

	// farewell is how long Open waits for its own end when it is cancelled, before it
	// takes it that a system call hangs.
	farewell = 250 * time.Millisecond
)

// Left counts the system calls that Opens have left behind because they hang. The
// zero value is ready; all methods may be called in parallel.
type Left struct{ n atomic.Int64 }

// mostLeft is how many system calls may hang: each holds a thread, and a process
// may have ten thousand.
const mostLeft = 1024

// caller is one goroutine that makes system calls, one at a time.
type caller struct {
	mu        sync.Mutex // guards the following
	number    uint64     // of calls begun
	busy      bool
	op        string
	dir, name string // what the call is about: name in dir, or dir itself

	seen  uint64 // the watch's own: the call at its last look
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

// caller makes a caller that the watch looks at.
func (w *calls) caller() *caller {
	c := new(caller)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.callers = append(w.callers, c)
	return c
}

// Begin notes a call: its name, and what it is about.
func (c *caller) Begin(op, dir, name string) {
	c.mu.Lock()
	c.number++
	c.busy, c.op, c.dir, c.name = true, op, dir, name
	c.mu.Unlock()
}

// End notes that the call has returned.
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

// longest finds the call that has been under way longest, not counting the time
// lost since the last look.
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

// path is where name in dir lies; dir may be below the root.
func (w *calls) path(dir, name string) string {
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(w.root, dir)
	}
	return filepath.Join(dir, name)
}

// open calls do, which opens the folder, and waits for it as await does. What it
// opens too late is closed.
func (w *calls) open(ctx context.Context,
	do func(context.Context, *calls) (*Folder, error),
) (*Folder, error) {
	if w.opts.Left == nil {
		w.opts.Left = new(Left)
	}
	if n := w.opts.Left.n.Load(); n >= mostLeft {
		return nil, &dataset.Error{
			Path: w.root, Kind: dataset.ErrUnavailable,
			Hint: fmt.Sprintf("not tried, because %d system calls of attempts before it have not "+
				"returned: see whether the file systems of the datasets still answer", n),
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // what is left behind ends as soon as it can
	var (
		f    *Folder
		err  error
		done = make(chan struct{})
	)
	go func() { // ends before open does, or when the system call that hangs returns
		f, err = do(ctx, w)
		close(done)
	}()
	late := w.await(ctx, done)
	if late == nil {
		return f, err
	}
	n := w.busy()
	w.opts.Left.n.Add(n)
	go func() { // ends with the other one
		<-done
		w.opts.Left.n.Add(-n)
		if f != nil {
			_ = f.Close()
		}
	}()
	return nil, late
}

// busy is how many system calls are under way.
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

// await waits for the end of what is watched, at most as long as no system call
// hangs for longer than the timeout, and not much longer than ctx. Its error says
// that it did not end.
func (w *calls) await(ctx context.Context, done <-chan struct{}) error {
	period := min(max(min(w.opts.SlowAfter, w.opts.Timeout)/40, time.Millisecond),
		100*time.Millisecond)
	look := time.NewTicker(period)
	defer look.Stop()
	last := time.Now()
	cancelled := ctx.Done()
	var patience <-chan time.Time
	for {
		select {
		case <-done:
			return nil
		case <-cancelled:
			cancelled = nil
			timer := time.NewTimer(farewell)
			defer timer.Stop()
			patience = timer.C
		case <-patience:
			return fmt.Errorf("scan %s: %w", w.root, ctx.Err())
		case now := <-look.C:
			// A process that was stopped, or starved, has not waited meanwhile.
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

// tell tells of one call that is slow; of others not before that has returned.
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
	return &dataset.Error{
		Path: h.path, Kind: dataset.ErrUnavailable,
		Hint: fmt.Sprintf("%s has not returned for %v, and source_timeout is %v: see whether the "+
			"file system that it lies on still answers",
			h.op, waited.Round(100*time.Millisecond), w.opts.Timeout),
	}
}
