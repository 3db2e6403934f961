package runner

import (
	"sync"
	"time"
)

// gate lets a number of goroutines in at the same time, each with a worker, and measures whether
// another number would do as well.
//
// A goroutine that is inside does, before it leaves and for no longer than a turn, also what others
// wait with, in the order in which they came. Each sample would otherwise wake a goroutine, and
// often a thread of the system: up to a twentieth of the processors' time, measured.
type gate struct {
	now func() time.Time

	mu   sync.Mutex // guards the following
	open int        // how many may be inside
	in   int        // how many are
	line []*item    // what waits to be done
	used []*item    // which are free to be used again
	workers

	tuner *tuner // nil: the number is given
	// A window is a time in which something always waited: only then the number of threads limits
	// anything.
	since time.Time // when the window began; zero: there is none
	done  int       // what was done since
}

// item is something to do.
type item struct {
	work
	came   time.Time
	worker *worker // of the goroutine that is let in with the item; nil: it has to make one
	after  *item   // the next one that the same goroutine did for others
	// turn says to the goroutine that waits with the item that it is let in, or else that another
	// did it.
	turn chan bool
}

const (
	windowTime    = 250 * time.Millisecond
	windowSamples = 16 // per thread

	// turnTime is how long a goroutine goes on inside for others. What it did for them is known to
	// them only afterwards.
	turnTime = 2 * time.Millisecond
)

func newGate(o Options, now func() time.Time) *gate {
	g := &gate{now: now, open: o.Threads}
	if o.Threads == 0 {
		g.tuner = newTuner(max(o.Most, 1))
		g.open = g.tuner.threads
	}
	return g
}

// enter waits until the caller is let in, and then has to do the work and to call next until it is
// out; or until another has done it, and the caller has to give the item to forget.
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

// next says that the goroutine that is inside, since then, with its own item, has done an item with
// the worker. It returns another one to do; or nil, and the caller is out, and has neither the
// worker nor its own item any more.
func (g *gate) next(since time.Time, own *item, w *worker) *item {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	g.measure(now)
	if len(g.line) > 0 && g.in <= g.open && now.Sub(since) < turnTime {
		return g.first()
	}
	g.put(w)
	g.in--
	for g.in < g.open && len(g.line) > 0 {
		it := g.first()
		it.worker = g.take()
		it.turn <- true // has room for it
		g.in++
	}
	g.reuse(own)
	return nil
}

// first takes the first item off the line. g.mu is held.
func (g *gate) first() *item {
	it := g.line[0]
	g.line = append(g.line[:0], g.line[1:]...)
	if len(g.line) == 0 {
		g.since = time.Time{}
	}
	return it
}

// forget takes an item back that another goroutine has done.
func (g *gate) forget(it *item) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.reuse(it)
}

// reuse has an item used again. g.mu is held.
func (g *gate) reuse(it *item) {
	it.work, it.worker, it.after = work{}, nil, nil
	g.used = append(g.used, it)
}

// measure counts what is done, and at the end of a window asks the tuner. g.mu is held.
func (g *gate) measure(now time.Time) {
	if g.since.IsZero() || g.tuner == nil {
		return
	}
	g.done++
	if took := now.Sub(g.since); took >= windowTime && g.done >= windowSamples*g.open {
		g.open = g.tuner.next(float64(g.done) / took.Seconds())
		g.since, g.done = now, 0
	}
}

// tuner finds the smallest number of threads that is as fast as any, within a tolerance: the
// training process, and other jobs, need processors as well (thesis chapter 7 asks for a number
// that is found while running).
//
// It starts with as many as allowed and tries one less, for a window. If that was as fast, it stays
// there and tries again; if not, it goes back, and tries again after a pause that doubles each
// time, because the machine may have changed. After each pause it first tries one more. What a
// number of threads achieved is compared with the best of the recent windows, so that small steps
// down do not add up.
type tuner struct {
	threads, most int
	best          float64 // samples per second, of the recent windows
	from          int     // the number before the trial; 0: no trial
	pause, wait   int     // windows
	up            bool    // the next trial is of one more
}

const (
	tolerance = 0.97
	shortest  = 8   // windows, of a pause
	longest   = 512 // windows
	forget    = 0.995
)

func newTuner(most int) *tuner {
	return &tuner{threads: most, most: most, wait: 1, pause: shortest}
}

// next takes what the window achieved, in samples per second, and returns the number of threads for
// the next one.
func (t *tuner) next(rate float64) int {
	t.best *= forget
	if t.from != 0 {
		t.judge(rate)
		return t.threads
	}
	t.best = max(t.best, rate)
	if t.wait--; t.wait > 0 {
		return t.threads
	}
	t.from = t.threads
	switch {
	case t.up && t.threads < t.most:
		t.threads++
	case t.threads > 1:
		t.threads--
	default:
		t.from, t.wait = 0, t.pause
	}
	t.up = !t.up
	return t.threads
}

// judge ends a trial.
func (t *tuner) judge(rate float64) {
	fewer := t.threads < t.from
	switch {
	case fewer && rate >= tolerance*t.best:
		t.wait, t.up, t.pause = 1, false, shortest // go on down
	case !fewer && rate*tolerance > t.best:
		t.wait, t.up, t.pause = 1, true, shortest // go on up
	default:
		t.threads = t.from
		t.pause = min(2*t.pause, longest)
		t.wait = t.pause
	}
	t.best = max(t.best, rate)
	t.from = 0
}
