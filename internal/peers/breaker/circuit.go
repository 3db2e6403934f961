package breaker

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/model/meter"
	"github.com/hdmlp/hdmlp/internal/model/routing"
	"github.com/hdmlp/hdmlp/internal/peers/exchange"
	"github.com/hdmlp/hdmlp/internal/report"
)

// circuit is the circuit breaker of one node.
type circuit struct {
	remote  bool          // false for this node
	timeout time.Duration // how long a read may take in all; 0: no limit
	meter   meter.Meter
	mu      struct { // guards the following
		sync.Mutex
		routing.Circuit // opened by failures; alive is besides
		fetcher         Fetcher
		alive           bool
		failed          int64
		reason          string // of the last failure
		// away has a bit for each sample that the node gave back, in the set of this version.
		away        []byte
		awayVersion int
	}
}

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
	return c.mu.alive && !c.mu.Open(now) &&
		!(id/8 < len(c.mu.away) && c.mu.away[id/8]&(1<<(id%8)) != 0)
}

// tier is predict for a choice, and whether the estimate is stale (routing.Circuit.Stale), if the
// source is predicted to take so many seconds.
func (c *circuit) tier(now time.Time, bytes int64, source float64) (t routing.Tier) {
	c.mu.Lock()
	waited, again := c.mu.Waited(), c.mu.Consider()
	c.mu.Unlock()
	t.Arrival = c.meter.Answer(now, bytes, waited)
	idle := c.meter.Idle(now)
	if again || idle >= routing.TrialInterval(t.Arrival, source) { // saves the lock
		c.mu.Lock()
		defer c.mu.Unlock()
		t.Stale = c.mu.Stale(now, idle, t.Arrival, source)
	}
	return t
}

// predict predicts how long a request would take that begins now, in seconds, without what the node
// waits for its source.
func (c *circuit) predict(now time.Time, bytes int64) float64 {
	c.mu.Lock()
	waited := c.mu.Waited()
	c.mu.Unlock()
	return c.meter.Answer(now, bytes, waited)
}

// relays reports whether the node has had to read most samples lately, or has not answered yet.
func (c *circuit) relays() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.Relays()
}

// ask returns the node's fetcher, and how long a request that begins now may take
// (routing.Circuit.Ask).
func (c *circuit) ask(now time.Time, bytes int64, wait, source time.Duration) (f Fetcher,
	asked routing.Asked,
) {
	predicted := c.predict(now, bytes)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.fetcher, c.mu.Ask(now, wait, predicted, source)
}

// late notes that a request was not answered in time, and returns the error: errLate, unless the
// node counts as silent.
func (c *circuit) late(now time.Time, a routing.Asked, source time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch since, silent := c.mu.Silent(now, a, source); {
	case since > 0:
		return late(fmt.Sprintf("no answer for %v", since.Round(time.Millisecond)))
	case silent:
		return late("still no answer")
	}
	return errLate
}

// answered notes the result of a request, and returns the text for Tell, if any. waited is how long
// the node waited for its source; 0 if it had the sample.
func (c *circuit) answered(now time.Time, a routing.Asked, took, waited time.Duration,
	err error,
) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		if c.mu.Answered(now, a, took, waited) {
			return "answers again"
		}
		return ""
	case errors.Is(err, errLate):
		return ""
	}
	c.mu.failed++
	c.mu.reason = err.Error()
	if c.mu.Failed(now, failure(err)) {
		return fmt.Sprintf("is bypassed; its samples are read from the source: %v", err)
	}
	return ""
}

// failure returns how a request failed.
func failure(err error) routing.Failure {
	switch {
	case errors.Is(err, exchange.ErrNotHeld), errors.Is(err, exchange.ErrFailed):
		return routing.Unserved
	case errors.Is(err, exchange.ErrCorrupt), errors.Is(err, exchange.ErrRefused):
		return routing.Wrong
	}
	return routing.Unavailable
}

func (c *circuit) setAlive(alive bool) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.alive == alive {
		return ""
	}
	c.mu.alive = alive
	if alive {
		c.mu.Back()
		return "is back"
	}
	return "is gone; its samples are read from the source, or taken over by other nodes"
}

func (c *circuit) state(now time.Time) report.Peer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return report.Peer{
		Alive: c.mu.alive, Latency: c.mu.Latency().Nanoseconds(), Failed: c.mu.failed,
		Reason:   c.mu.reason,
		Bypassed: !c.mu.alive || c.mu.Open(now),
	}
}
