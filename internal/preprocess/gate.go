package preprocess

import (
	"sync"
	"time"
)

// gate lets a number of goroutines through at the same time, in the order in which they came, and measures whether
// another number would do as well.
type gate struct {
	now  func() time.Time
	mu   sync.Mutex
	open int             // how many may be inside
	in   int             // how many are
	line []chan struct{} // who waits, each with a channel that says when it is let in
	used []chan struct{} // channels that nobody waits at

	tuner *tuner // nil: the number is given
	// A window is a time in which there was always somebody waiting: only then the number of threads limits anything.
	since time.Time // when the window began; zero: there is none
	left  int       // who left since
}

const (
	windowTime    = 250 * time.Millisecond
	windowSamples = 16 // per thread
)

func newGate(o Options, now func() time.Time) *gate {
	g := &gate{now: now, open: o.Threads}
	if o.Threads == 0 {
		most := max(o.Most, 1)
		if most > 1 {
			most++ // so that no processor idles while a place changes hands: a tenth of the time, measured
		}
		g.tuner = newTuner(most)
		g.open = g.tuner.threads
	}
	return g
}

// enter waits until there is room.
func (g *gate) enter() {
	g.mu.Lock()
	if g.in < g.open && len(g.line) == 0 {
		g.in++
		g.mu.Unlock()
		return
	}
	var turn chan struct{}
	if n := len(g.used); n > 0 {
		turn, g.used = g.used[n-1], g.used[:n-1]
	} else {
		turn = make(chan struct{}, 1)
	}
	g.line = append(g.line, turn)
	if g.since.IsZero() {
		g.since, g.left = g.now(), 0
	}
	g.mu.Unlock()
	<-turn
	g.mu.Lock()
	g.used = append(g.used, turn)
	g.mu.Unlock()
}

// leave makes room for the next.
func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.in--
	g.measure()
	for g.in < g.open && len(g.line) > 0 {
		g.line[0] <- struct{}{} // has room for it
		g.line = append(g.line[:0], g.line[1:]...)
		g.in++
	}
	if len(g.line) == 0 {
		g.since = time.Time{}
	}
}

// measure counts who leaves, and at the end of a window asks the tuner. g.mu is held.
func (g *gate) measure() {
	if g.since.IsZero() || g.tuner == nil {
		return
	}
	g.left++
	now := g.now()
	if took := now.Sub(g.since); took >= windowTime && g.left >= windowSamples*g.open {
		g.open = g.tuner.next(float64(g.left) / took.Seconds())
		g.since, g.left = now, 0
	}
}

func (g *gate) limit() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.open
}

// tuner finds the smallest number of threads that is as fast as any, within a tolerance: the training process, and other
// jobs, need processors as well (thesis chapter 7 asks for a number that is found while running).
//
// It starts with as many as allowed and tries one less, for a window. If that was as fast, it stays there and tries again; if
// not, it goes back, and tries again after a pause that doubles each time, because the machine may have changed. After each
// pause it first tries one more. What a number of threads achieved is compared with the best of the recent
// windows, so that small steps down do not add up.
type tuner struct {
	threads, most int
	best          float64 // samples per second, of the recent windows
	from          int     // the number before the trial; 0: no trial
	pause, wait   int     // windows
	up            bool    // the next trial is of one more
}

const (
	tolerance = 0.95
	shortest  = 8   // windows, of a pause
	longest   = 512 // windows
	forget    = 0.995
)

func newTuner(most int) *tuner {
	return &tuner{threads: most, most: most, wait: 1, pause: shortest}
}

// next takes what the window achieved, in samples per second, and returns the number of threads for the next one.
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
