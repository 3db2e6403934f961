package stage

import "time"

const (
	gainBatches = 8               // after which it is judged
	gainLeast   = 1.1             // times the throughput: less is no gain
	gainPause   = 5 * time.Second // before another try; twice as long after each more that is in vain
)

// gain decides whether the buffer grows while all processors are busy. More batches in progress may
// then be no gain at all, while pages for the buffer take the processors' time: beside a fast
// source, a fifth of an epoch of 2.5 s was spent on them. But they are one if what is waited for
// has latency, and processors are busy with other things. So it grows by one step at a time, and by
// the next one only if batches do not take longer in proportion: by Little's law, the throughput of
// a full buffer is its size over the time that a batch takes from its layout until it is staged.
// That holds whatever the process does meanwhile.
type gain struct {
	begins  int // batches of the Run that were laid out before the last growth: they tell nothing
	batches int // staged since then, or since they were judged last, and
	took    time.Duration
	// Bytes per second: of those that were judged last; and of those before the last growth, 0 once
	// that is judged.
	last, before float64
	pause        time.Duration // the last one; 0: the last growth was a gain
	rests        time.Time     // no growth before
}

// restart forgets what it counts by batches: another Run begins.
func (g *gain) restart() { g.begins, g.batches, g.took, g.before = 0, 0, 0, 0 }

// staged counts a batch, by its number in the Run, that is staged.
func (g *gain) staged(number int, took time.Duration) {
	if number >= g.begins {
		g.batches++
		g.took += took
	}
}

// grows reports whether a buffer of this size, in bytes, is to grow now.
func (g *gain) grows(now time.Time, size int64) bool {
	if g.batches < gainBatches || g.took <= 0 {
		return false
	}
	g.last = float64(size) * float64(g.batches) / g.took.Seconds()
	switch {
	case g.before == 0:
	case g.last < gainLeast*g.before:
		g.pause = max(2*g.pause, gainPause)
		g.rests = now.Add(g.pause)
	default:
		g.pause = 0
	}
	g.batches, g.took, g.before = 0, 0, 0
	return !now.Before(g.rests)
}

// grew records that the buffer grew, with so many batches laid out.
func (g *gain) grew(laidOut int) { g.begins, g.before = laidOut, g.last }
