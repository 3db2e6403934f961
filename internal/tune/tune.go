// Package tune finds the number of streams, or threads, that gives the highest throughput.
//
// It is pure: the caller measures, in windows in which work was always waiting, because only then
// the number limits the throughput.
package tune

// Tuner finds the smallest number whose throughput is within a tolerance of the best: more would
// take memory and CPUs from others (thesis chapter 7 proposes to determine such numbers at run
// time).
//
// From time to time it tries a smaller or a larger number for a window, and keeps a smaller one
// that is not slower, or a larger one that is faster, and goes on in that direction. Otherwise it
// goes back, and tries the other direction; if that fails as well, it tries again after a pause,
// because the load of the machine may change. The pause doubles each time. Trials are compared with
// the best of the recent windows, so that small losses do not accumulate. A Tuner is not safe for
// concurrent use.
type Tuner struct {
	o           Options
	value       int
	best        float64 // rate of the recent windows
	from        int     // the number before the trial; 0: no trial
	pause, wait int     // windows
	up          bool    // the next trial is a larger number
	failed      bool    // the trial before this one failed
}

// Options are the options of a Tuner.
type Options struct {
	Start, Least, Most int // the first number, and the limits
	// Growth is the factor between a number and the next one that is tried; 0: numbers are tried one
	// by one.
	Growth float64
}

const (
	tolerance = 0.97
	shortest  = 8   // windows, of a pause
	longest   = 512 // windows
	forget    = 0.995
)

// New returns a tuner.
func New(o Options) *Tuner {
	return &Tuner{
		o: o, value: min(max(o.Start, o.Least), o.Most), wait: 1, pause: shortest,
		up: o.Start < o.Most,
	}
}

// Value returns the number to use now.
func (t *Tuner) Value() int { return t.value }

// larger and smaller return the numbers to try next.
func (t *Tuner) larger() int {
	return min(max(t.value+1, int(float64(t.value)*t.o.Growth+0.5)), t.o.Most)
}

func (t *Tuner) smaller() int {
	to := t.value - 1
	if t.o.Growth > 1 {
		to = min(to, int(float64(t.value)/t.o.Growth+0.5))
	}
	return max(to, t.o.Least)
}

// Next returns the number for the next window, given the rate of the last one.
func (t *Tuner) Next(rate float64) int {
	t.best *= forget
	if t.from != 0 {
		t.judge(rate)
		return t.value
	}
	t.best = max(t.best, rate)
	if t.wait--; t.wait > 0 {
		return t.value
	}
	t.from = t.value
	switch {
	case t.up && t.value < t.o.Most:
		t.value = t.larger()
	case t.value > t.o.Least:
		t.value = t.smaller()
	default:
		t.from, t.wait = 0, t.pause
	}
	t.up = !t.up
	return t.value
}

// judge ends a trial with the given rate.
func (t *Tuner) judge(rate float64) {
	fewer := t.value < t.from
	switch {
	case fewer && rate >= tolerance*t.best:
		t.wait, t.up, t.pause, t.failed = 1, false, shortest, false // go on down
	case !fewer && rate*tolerance > t.best:
		t.wait, t.up, t.pause, t.failed = 1, true, shortest, false // go on up
	case !t.failed && t.o.Least < t.from && t.from < t.o.Most: // try the other direction
		t.value, t.wait, t.failed = t.from, 1, true
	default:
		t.value, t.failed = t.from, false
		t.pause = min(2*t.pause, longest)
		t.wait = t.pause
	}
	t.best = max(t.best, rate)
	t.from = 0
}
