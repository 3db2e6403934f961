package breaker

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/model/meter"
	"github.com/hdmlp/hdmlp/internal/peers/exchange"
	"github.com/hdmlp/hdmlp/internal/report"
)

// circuit is the circuit breaker of one node. It is open, which means that the node is bypassed,
// until a time, after which a request probes the node.
type circuit struct {
	remote  bool          // false for this node
	longest time.Duration // largest limit of a request
	meter   meter.Meter
	mu      struct { // guards the following
		sync.Mutex
		fetcher  Fetcher
		alive    bool
		latency  time.Duration // moving average of answered requests
		until    time.Time     // the circuit is open until then
		pause    time.Duration // for how long it was opened last
		explored time.Time     // when a request was last attracted to keep the estimate current
		answered time.Time     // when it last sent a sample
		silent   time.Time     // no request was answered since; zero: none is unanswered
		reported bool          // Tell was called with the node being bypassed
		cold     float64       // share of the latest answers that it had to read from the source
		waited   float64       // seconds that it waited for that, averaged over all of these answers
		failed   int64
		reason   string // of the last failure
		// away has a bit for each sample that the node gave back, in the set of this version.
		away        []byte
		awayVersion int
	}
}

const (
	shortest = 2 * time.Second  // least time without an answer after which a node is silent
	longest  = 10 * time.Second // largest one
	// A request's limit is patience times what the source takes, but at least hedge. If that is less
	// than calm, the request may take as long as the caller waits, such as until the sample is
	// needed, and exceed times as long as was predicted, up to calm (and longer, see goesOn); and
	// calm while the node has to read samples from the source, because then it is the source that
	// takes long, of which it has a longer queue.
	patience = 8
	hedge    = 100 * time.Millisecond
	exceed   = 4
	calm     = time.Second
	// leastCold is the share of the latest answers from which on a node has to read samples.
	leastCold = 1.0 / 32
	// The limit is at most 1/share of Options.Timeout: a node that does not answer must leave time to
	// read the source.
	share = 4

	firstPause = 500 * time.Millisecond
	lastPause  = 30 * time.Second
)

// setAway sets a part of the samples that the node gave back.
func (c *circuit) setAway(version, from int, bits []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if version < c.mu.awayVersion {
		return
	}
	if version > c.mu.awayVersion {
		c.mu.away, c.mu.awayVersion = nil, version
	}
	if need := from/8 + len(bits); need > len(c.mu.away) && len(bits) > 0 {
		c.mu.away = append(c.mu.away, make([]byte, need-len(c.mu.away))...)
	}
	copy(c.mu.away[min(from/8, len(c.mu.away)):], bits)
}

// worth reports whether the node is worth asking for a sample.
func (c *circuit) worth(id int, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.alive && !now.Before(c.mu.until) &&
		!(id/8 < len(c.mu.away) && c.mu.away[id/8]&(1<<(id%8)) != 0)
}

// arrival is predict for a choice. A node that was not chosen for some time is explored, to keep
// its estimate current: one request is attracted by an arrival of 0.
func (c *circuit) arrival(now time.Time, bytes int64, source float64) float64 {
	seconds := c.predict(now, bytes, source)
	least := meter.Rest(seconds)
	if c.meter.Idle(now) < least {
		return seconds
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(c.mu.explored) < least {
		return seconds
	}
	c.mu.explored = now
	return 0
}

// predict predicts how long a request would take that begins now, in seconds, if reads from the
// source take so long.
func (c *circuit) predict(now time.Time, bytes int64, source float64) float64 {
	c.mu.Lock()
	cold, waited := c.mu.cold, c.mu.waited
	c.mu.Unlock()
	return c.meter.Answer(now, bytes, waited) + cold*source
}

// relays reports whether the node has had to read most samples lately, or has not answered yet.
func (c *circuit) relays() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.latency == 0 || c.mu.cold > 0.5
}

// ask returns the node's fetcher, and how long a request that begins now may take, however fast the
// source is. The node may have to read the sample from the source, which takes it as long as it
// takes this node.
func (c *circuit) ask(now time.Time, bytes int64, source, wait time.Duration) (f Fetcher,
	least time.Duration,
) {
	predicted := time.Duration(c.predict(now, bytes, source.Seconds()) * float64(time.Second))
	c.mu.Lock()
	defer c.mu.Unlock()
	least = min(max(wait, exceed*predicted), calm)
	if c.mu.cold > leastCold || c.mu.latency == 0 {
		least = calm
	}
	if c.mu.silent.IsZero() {
		c.mu.silent = now
	}
	return c.mu.fetcher, least
}

// goesOn returns how long a request that began at a time may take whose sample is due so long from
// now: until then as long as the node answers others, because the request is in their queue then.
// To give it up would send its sample a second time, by way of the source: over a link of 12 MB/s
// with a queue of 0.9 s, up to 3 % of a dataset. It is asked again after calm: the node may have
// stopped to answer, and the sample be needed sooner.
func (c *circuit) goesOn(begun, now time.Time, due time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(c.mu.answered) >= calm || due < hedge {
		return 0
	}
	return now.Sub(begun) + min(due, calm)
}

// limit returns the time limit of a request that may take least in any case, if the source takes
// so long.
func (c *circuit) limit(source, least time.Duration) time.Duration {
	return min(max(patience*source, hedge, least), c.longest)
}

// late notes that a request was not answered in time, and returns the error: errLate, unless the
// node counts as silent, for which it must have answered no request for longer than the source
// takes.
func (c *circuit) late(now time.Time, source time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	silent := now.Sub(c.mu.silent)
	bound := min(max(patience*max(c.mu.latency, source), shortest), longest)
	switch {
	case c.mu.silent.IsZero(): // another request was answered since
	case silent >= bound:
		return late(fmt.Sprintf("no answer for %v", silent.Round(time.Millisecond)))
	case c.mu.reported: // silent may be since a request that was made long after it fell silent
		return late("still no answer")
	}
	return errLate
}

// answered notes the result of a request, and returns the text for Tell, if any. waited is how long
// the node waited for its source; 0 if it had the sample.
func (c *circuit) answered(now time.Time, took, waited time.Duration, err error) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !errors.Is(err, errLate) {
		c.mu.silent = time.Time{}
	}
	if err == nil {
		c.mu.answered = now
		if c.mu.latency == 0 {
			c.mu.latency = took
		}
		c.mu.latency += (took - c.mu.latency) / 16
		c.mu.waited += (waited.Seconds() - c.mu.waited) / 16
		if c.mu.cold -= c.mu.cold / 16; waited > 0 {
			c.mu.cold += 1.0 / 16
		}
		c.mu.pause = 0
		if c.mu.reported {
			c.mu.reported = false
			return "answers again"
		}
		return ""
	}
	if errors.Is(err, errLate) {
		return ""
	}
	c.mu.failed++
	c.mu.reason = err.Error()
	switch {
	case errors.Is(err, exchange.ErrNotHeld), errors.Is(err, exchange.ErrFailed):
		return "" // the node works
	case now.Before(c.mu.until):
		return "" // other requests that were in flight
	case errors.Is(err, exchange.ErrCorrupt), errors.Is(err, exchange.ErrRefused):
		c.mu.pause = lastPause
	default:
		c.mu.pause = min(max(2*c.mu.pause, firstPause), lastPause)
	}
	c.mu.until = now.Add(c.mu.pause)
	if c.mu.reported {
		return ""
	}
	c.mu.reported = true
	return fmt.Sprintf("is bypassed; its samples are read from the source: %v", err)
}

func (c *circuit) setAlive(alive bool) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.alive == alive {
		return ""
	}
	c.mu.alive = alive
	if alive {
		c.mu.until, c.mu.pause, c.mu.latency, c.mu.reported = time.Time{}, 0, 0, false
		return "is back"
	}
	return "is gone; its samples are read from the source, or taken over by other nodes"
}

func (c *circuit) state(now time.Time) report.Peer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return report.Peer{
		Alive: c.mu.alive, Latency: c.mu.latency.Nanoseconds(), Failed: c.mu.failed,
		Reason:   c.mu.reason,
		Bypassed: !c.mu.alive || now.Before(c.mu.until),
	}
}
