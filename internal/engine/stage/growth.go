package stage

import "time"

const (
	minGain        = 1.1 // times the throughput: less is no gain
	gainTries      = 3   // turnovers that may show it: a slow sample makes one of them slow
	growthInterval = 2 * time.Second
)

// growth decides when a full buffer grows: by one step once per turnover, the time in which all
// batches of a full buffer are taken.
//
// More batches in progress are a gain if what is waited for has latency. They are none if all
// processors are busy with what is in progress: pages for the buffer then take their part of them.
// So while they are busy, the next step comes at once only if the process waited less for each
// batch after the one before (by Little's law, a turnover shows it), and otherwise after a pause,
// which is twice as long each time.
type growth struct {
	// The present turnover: how long the process had waited in all when it began, how many batches
	// of the Run were taken then, and how many laid out, which are all taken when it ends. laid is
	// 0 if there is none.
	waited      time.Duration
	taken, laid int
	turned      int // turnovers since the buffer grew
	// The most batches per second of waiting of a turnover since the buffer grew, and before it
	// did; that one is 0 if the last growth is no longer judged.
	best, before float64
	pause        time.Duration // the last one; 0: the last growth was a gain
	rests        time.Time     // no growth before, while processors are busy
}

// restart forgets what it counts by batches: another Run begins.
func (g *growth) restart() { g.laid = 0 }

// full records that there is no room for another batch. The process has waited for this long in
// all.
func (g *growth) full(waited time.Duration, taken, laid int) {
	if g.laid == 0 && taken < laid {
		g.waited = waited
		g.taken = taken
		g.laid = laid
	}
}

// took records that the process has taken so many batches, and waited for this long in all.
func (g *growth) took(now time.Time, waited time.Duration, taken int) {
	if g.laid == 0 || taken < g.laid {
		return
	}
	g.laid = 0
	g.turned++
	g.best = max(g.best, float64(taken-g.taken)/max(waited-g.waited, 1).Seconds())
	switch {
	case g.before == 0:
	case g.best >= minGain*g.before:
		g.pause, g.before = 0, 0
	case g.turned == gainTries:
		g.pause, g.before = max(2*g.pause, growthInterval), 0
		g.rests = now.Add(g.pause)
	}
}

// due reports whether a full buffer is to grow now.
func (g *growth) due(now time.Time, busy bool) bool {
	return g.turned > 0 && (!busy || g.before == 0 && !now.Before(g.rests))
}

// grew records that the buffer grew.
func (g *growth) grew() {
	g.before, g.best = g.best, 0
	g.laid, g.turned = 0, 0
}
