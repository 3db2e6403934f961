// Package tune finds the number of streams, or threads, that gives the highest throughput.
//
// It is pure: the caller measures, in windows in which work was always waiting, because only then
// the number limits the throughput.
package tune

import "math"

// Tuner finds the smallest number whose throughput is within a tolerance of the best: more would
// take memory and CPUs from others (thesis chapter 7 proposes to determine such numbers at run
// time).
//
// From time to time it tries a smaller or a larger number for a window, or a few if the difference
// is small, and keeps a smaller one that is not slower, or a larger one that is faster, and goes on
// in that direction. Otherwise it goes back, and tries the other direction; if that fails as well,
// it tries again after a pause, because the load of the machine may change. The pause doubles each
// time.
//
// Trials are compared with the mean of the windows at the number before, because the rate of a
// single window is noisy, and the best of several all the more. Smaller numbers are compared with
// the rate from which the tuner began to go down as well, so that small losses do not accumulate. A
// Tuner is not safe for concurrent use.
type Tuner struct {
	o           Options
	value       int
	mean        float64 // rate at value: over its last windows
	windows     float64 // that mean was computed from
	top         float64 // rate at the number from which smaller ones were kept; 0: none was
	from        int     // the number before the trial; 0: no trial
	tried       float64 // rate during the trial
	trials      int     // windows that tried was computed from
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
	averaged  = 8   // windows
	obvious   = 0.2 // difference that one window of a trial suffices for
	doubtful  = 3   // windows of a trial, if the difference is smaller
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

// Kept returns the number that is in use but for trials: what predictions should count on.
func (t *Tuner) Kept() int {
	if t.from != 0 {
		return t.from
	}
	return t.value
}

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
	t.top *= forget
	if t.from != 0 {
		t.trials++
		t.tried += (rate - t.tried) / float64(t.trials)
		if math.Abs(t.tried-t.mean) > obvious*t.mean || t.trials == doubtful {
			t.judge(t.tried)
			t.tried, t.trials = 0, 0
		}
		return t.value
	}
	t.windows = min(t.windows+1, averaged)
	t.mean += (rate - t.mean) / t.windows
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

// Adopt makes a number that was found elsewhere the value. What was measured before it no longer
// counts.
func (t *Tuner) Adopt(value int) {
	value = min(max(value, t.o.Least), t.o.Most)
	*t = Tuner{o: t.o, value: value, wait: 1, pause: t.pause, up: value < t.o.Most}
}

// judge ends a trial with the given rate.
func (t *Tuner) judge(rate float64) {
	fewer := t.value < t.from
	top := max(t.top, t.mean)
	switch {
	case fewer && rate >= tolerance*top:
		t.keep(rate, top) // go on down
	case !fewer && rate*tolerance > t.mean: // go on up
		t.keep(rate, 0)
		t.up = true
	case !t.failed && t.o.Least < t.from && t.from < t.o.Most: // try the other direction
		t.value = t.from
		t.wait = 1
		t.failed = true
	default:
		t.value, t.failed = t.from, false
		t.pause = min(2*t.pause, longest)
		t.wait = t.pause
	}
	t.from = 0
}

// keep keeps the number that was tried, at which the rate was this.
func (t *Tuner) keep(rate, top float64) {
	t.mean = rate
	t.windows = 1
	t.top = top
	t.wait = 1
	t.up = false
	t.pause = shortest
	t.failed = false
}
