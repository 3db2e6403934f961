package stage

import "time"

const (
	gainWindow = 250 * time.Millisecond
	gainLeast  = 1.1             // times the batches per second before: less is no gain
	gainPause  = 5 * time.Second // before another try
)

// gain decides whether the buffer grows while all processors are busy. More batches in progress may
// then be no gain at all, while pages for the buffer take the processors' time: beside a fast
// source, a quarter of an epoch of 2.5 s was spent on them. But they are one if what is waited for
// has latency, and processors are busy with other things. So it grows by one step at a time, and by
// the next one only if batches were taken faster since.
type gain struct {
	begun time.Time // of a window, in which batches are counted
	taken int       // batches by then
	rate  float64   // batches per second in the window before the last growth; 0: it is judged
	rests time.Time // no growth before
}

// grows reports whether the buffer is to grow now, when the process has taken so many batches.
func (g *gain) grows(now time.Time, taken int) bool {
	took := now.Sub(g.begun)
	if g.begun.IsZero() || took > gainPause || taken < g.taken {
		*g = gain{begun: now, taken: taken, rests: g.rests}
		return false
	}
	if took < gainWindow {
		return false
	}
	rate := float64(taken-g.taken) / took.Seconds()
	if g.rate > 0 && rate < gainLeast*g.rate {
		g.rests = now.Add(gainPause)
	}
	g.begun, g.taken, g.rate = now, taken, 0
	if now.Before(g.rests) {
		return false
	}
	g.rate = rate
	return true
}
