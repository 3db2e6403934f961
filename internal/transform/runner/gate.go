package runner

import (
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/model/tune"
)

// gate is a semaphore: it admits a limited number of goroutines at a time, each with a worker. It
// measures throughput to tune that number.
//
// Before a goroutine leaves, it also runs the items of waiting goroutines, in order of arrival and
// for at most turnTime. Otherwise each sample would wake a goroutine, and often an OS thread, which
// took up to a twentieth of the CPU time when measured.
type gate struct {
	now func() time.Time

	mu   sync.Mutex // guards the following
	open int        // how many goroutines may be inside
	// opened is how open changed; nothing: it is fixed.
	opened tune.History
	in     int     // how many are
	line   []*item // waiting items, oldest first
	used   []*item // items to reuse
	workers

	tuner *tune.Tuner // nil: the number is fixed
	// A window is a period in which an item was always waiting: only then the number of threads
	// limits throughput.
	since time.Time // beginning of the window; zero: none
	done  int       // items done since then
	// each is the time from one finished item to the next while items wait, a moving average in
	// seconds, and last when one was finished; zero: none since items wait.
	each   float64
	timed  int // items in each
	last   time.Time
	waited time.Time // when an item was finished while others waited; zero: never
}

// item is a sample to transform.
type item struct {
	work
	came   time.Time
	worker *worker // for the goroutine that is admitted with the item; nil: it has to make one
	after  *item   // the next item that the same goroutine did for another
	// turn receives true when the goroutine that waits with the item is admitted, or false when
	// another goroutine has done the item.
	turn chan bool
}

const (
	windowTime    = 250 * time.Millisecond
	windowSamples = 16 // per thread

	// turnTime limits how long a goroutine runs items of others. They learn of the results only
	// afterwards.
	turnTime = 2 * time.Millisecond
)

func newGate(o Options, now func() time.Time) *gate {
	g := &gate{now: now, open: o.Threads}
	if o.Threads == 0 {
		most := max(o.Most, 1)
		g.tuner = tune.New(tune.Options{Start: most, Least: 1, Most: most})
		g.open = most
		g.opened.Add(now(), most)
	}
	return g
}

// enter waits until the caller is admitted or another goroutine has done the work. In the first
// case inside is true, and the caller must do the item and call next until that returns nil. In the
// second the caller must pass the item to forget.
func (g *gate) enter(w work) (it *item, inside bool) {
	g.mu.Lock()
	if n := len(g.used); n > 0 {
		it, g.used = g.used[n-1], g.used[:n-1]
	} else {
		it = &item{turn: make(chan bool, 1)}
	}
	it.work, it.came = w, g.now()
	if g.in < g.open && len(g.line) == 0 {
		g.in++
		it.worker = g.take()
		g.mu.Unlock()
		return it, true
	}
	g.line = append(g.line, it)
	if g.since.IsZero() {
		g.since, g.done = it.came, 0
	}
	g.mu.Unlock()
	return it, <-it.turn
}

// next records that a goroutine, admitted at since with the item own, has done an item with the
// worker w. It returns the next item to do. If it returns nil, the caller has left, and no longer
// owns the worker and its own item.
func (g *gate) next(since time.Time, own *item, w *worker) *item {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	g.measure(now)
	g.count(now)
	if len(g.line) > 0 && g.in <= g.open && now.Sub(since) < turnTime {
		return g.first()
	}
	g.put(w)
	g.in--
	for g.in < g.open && len(g.line) > 0 {
		it := g.first()
		it.worker = g.take()
		it.turn <- true // buffered, never blocks
		g.in++
	}
	g.reuse(own)
	return nil
}

// count counts a finished item for each. The caller must hold g.mu.
func (g *gate) count(now time.Time) {
	if len(g.line) == 0 {
		g.last = time.Time{}
		return
	}
	g.waited = now
	if !g.last.IsZero() {
		g.timed++
		g.each += (now.Sub(g.last).Seconds() - g.each) / float64(min(g.timed, averagedItems))
	}
	g.last = now
}

// averagedItems is how many items a moving average is over.
const averagedItems = 32

// takes estimates how long so many items take, in seconds; 0 if none has waited for a while.
func (g *gate) takes(items int) float64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.line) == 0 && g.now().Sub(g.waited) > idleTime {
		return 0
	}
	return float64(items) * g.each
}

// idleTime is for how long no item may wait although threads are the bottleneck: items come in
// bursts.
const idleTime = 50 * time.Millisecond

// first removes the first item from the line. The caller must hold g.mu.
func (g *gate) first() *item {
	it := g.line[0]
	g.line = append(g.line[:0], g.line[1:]...)
	if len(g.line) == 0 {
		g.since = time.Time{}
	}
	return it
}

// forget takes back an item that another goroutine has done.
func (g *gate) forget(it *item) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.reuse(it)
}

// reuse makes an item available for reuse. The caller must hold g.mu.
func (g *gate) reuse(it *item) {
	it.work = work{}
	it.worker = nil
	it.after = nil
	g.used = append(g.used, it)
}

// measure counts a finished item, and at the end of a window asks the tuner for the number of
// threads. The caller must hold g.mu.
func (g *gate) measure(now time.Time) {
	if g.since.IsZero() || g.tuner == nil {
		return
	}
	g.done++
	if took := now.Sub(g.since); took >= windowTime && g.done >= windowSamples*g.open {
		g.open = g.tuner.Next(float64(g.done) / took.Seconds())
		g.opened.Add(now, g.open)
		g.since, g.done = now, 0
	}
}
