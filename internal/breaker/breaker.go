// Package breaker reads samples from the other nodes of a job, with a circuit breaker per node: it
// knows which node owns a sample, and which nodes are worth asking at the moment.
//
// A node that is dead, hangs, or sends corrupt data is bypassed: its samples are read from the
// source until it works again. A request that takes much longer than the source would is given up.
// That costs time and bytes, but never changes data or order (DESIGN 7: never wait for one place).
//
// A Set is safe for concurrent use. It starts no goroutine and closes nothing.
package breaker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hdmlp/hdmlp/internal/exchange"
	"github.com/hdmlp/hdmlp/internal/meter"
	"github.com/hdmlp/hdmlp/internal/perfmodel"
	"github.com/hdmlp/hdmlp/internal/stats"
)

// Fetcher fetches samples from one node; *exchange.Client implements it.
type Fetcher interface {
	Fetch(ctx context.Context, id int32, dst []byte) (exchange.Answer, error)
}

// Options configure a Set.
type Options struct {
	Node  int              // this node
	Peers []Fetcher        // by node; nil for this one
	Now   func() time.Time // nil: time.Now
	// Tell is called when a node is bypassed and when it is asked again; nil: not called.
	Tell func(node int, text string)
}

// ErrBypassed reports that the sample's owner is not asked at the moment.
var ErrBypassed = errors.New("the sample's owner is bypassed")

// late reports that a request was given up, and why; it is context.DeadlineExceeded.
type late string

func (l late) Error() string { return string(l) }

// Is implements the interface of errors.Is.
func (l late) Is(target error) bool { return target == context.DeadlineExceeded }

// errLate reports that one request was not answered in time; others may have been.
const errLate = late("no answer in time")

// Set is the circuit breakers of the other nodes.
type Set struct {
	node     int
	now      func() time.Time
	tell     func(node int, text string)
	owner    atomic.Pointer[func(id int) int] // nil: no sample has an owner yet
	circuits []*circuit
}

// NewSet returns a Set whose nodes are all alive. Until SetOwner no sample has an owner.
func NewSet(o Options) *Set {
	s := &Set{node: o.Node, now: o.Now, tell: o.Tell}
	if s.now == nil {
		s.now = time.Now
	}
	if s.tell == nil {
		s.tell = func(int, string) {}
	}
	for _, f := range o.Peers {
		c := &circuit{remote: f != nil}
		c.meter.Know(perfmodel.GuessedPeer)
		c.mu.fetcher = f
		c.mu.alive = true
		s.circuits = append(s.circuits, c)
	}
	return s
}

// SetOwner sets the function that returns each sample's owner: a node, or -1.
func (s *Set) SetOwner(owner func(id int) int) { s.owner.Store(&owner) }

// SetAway sets which samples a node gave back, from a sample on: bits has one for each. The node is
// not asked for these. A set with a lower version than another one is out of date, and ignored.
func (s *Set) SetAway(node, version, from int, bits []byte) {
	if uint(node) < uint(len(s.circuits)) {
		s.circuits[node].setAway(version, from, bits)
	}
}

// Know sets what is known of reads from other nodes before they are measured.
func (s *Set) Know(k perfmodel.Known) {
	for _, c := range s.circuits {
		c.meter.Know(k)
	}
}

// Known returns what is known of reads from other nodes of samples of size MB: the median over the
// nodes that were measured, if any was.
func (s *Set) Known(size float64) perfmodel.Known {
	var nodes []perfmodel.Node
	for _, c := range s.circuits {
		if c.remote {
			nodes = append(nodes, perfmodel.Node{Network: c.meter.Known()})
		}
	}
	return perfmodel.Merge(nodes, size).Network
}

// SetAlive sets whether a node is alive.
func (s *Set) SetAlive(node int, alive bool) {
	if uint(node) < uint(len(s.circuits)) {
		s.report(node, s.circuits[node].setAlive(alive))
	}
}

// of returns the sample's owner, if it is another node.
func (s *Set) of(id int) (int, *circuit) {
	owner := s.owner.Load()
	if owner == nil {
		return -1, nil
	}
	n := (*owner)(id)
	if n == s.node || uint(n) >= uint(len(s.circuits)) || !s.circuits[n].remote {
		return -1, nil
	}
	return n, s.circuits[n]
}

// Arrival reports whether another node owns the sample and is worth asking now, and predicts how
// long it would take to fetch the sample, of this many bytes, in seconds. source is how long it
// would take from the source: as long as this is expected to take the owner, if it has to read the
// sample. A longer queue there than here is the source's and not the node's, and reading the sample
// here as well would make both longer.
func (s *Set) Arrival(id int, bytes int64, source float64) (seconds float64, ok bool) {
	_, c := s.of(id)
	if c == nil {
		return 0, false
	}
	now := s.now()
	if !c.worth(id, now) {
		return 0, false
	}
	return c.arrival(now, bytes, source), true
}

// Nodes returns the number of nodes, this one included.
func (s *Set) Nodes() int { return len(s.circuits) }

// Fetch fetches a sample from its owner, and returns the owner, the digest of the sample's bytes,
// and how long the owner waited for its source. On any error the caller should read the sample from
// the source, which takes that long; it is context.DeadlineExceeded if that is faster than to wait
// for the answer.
func (s *Set) Fetch(ctx context.Context, id int, dst []byte, source time.Duration) (node int,
	digest uint32, waited time.Duration, err error,
) {
	n, c := s.of(id)
	if c == nil {
		return -1, 0, 0, fmt.Errorf("sample %d: %w", id, ErrBypassed)
	}
	begun := s.now()
	fetcher, limit, bound := c.ask(begun, source)
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	read := c.meter.Begin(begun, len(dst))
	answer, err := fetcher.Fetch(within, int32(id), dst)
	read.Waited = answer.Waited
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		c.meter.GiveUp(s.now(), read)
		err = fmt.Errorf("sample %d: %w", id, c.late(s.now(), bound))
	} else {
		c.meter.End(s.now(), read, err)
	}
	if ctx.Err() == nil {
		s.report(n, c.answered(s.now(), s.now().Sub(begun), answer.Waited, err))
	}
	return n, answer.Digest, answer.Waited, err
}

func (s *Set) report(node int, text string) {
	if text != "" {
		s.tell(node, text)
	}
}

// States returns the state of all other nodes.
func (s *Set) States() []stats.Peer {
	var out []stats.Peer
	for n, c := range s.circuits {
		if c.remote {
			state := c.state(s.now())
			state.Node = n
			out = append(out, state)
		}
	}
	return out
}

// circuit is the circuit breaker of one node. It is open, which means that the node is bypassed,
// until a time, after which a request probes the node.
type circuit struct {
	remote bool // false for this node
	meter  meter.Meter
	mu     struct { // guards the following
		sync.Mutex
		fetcher  Fetcher
		alive    bool
		latency  time.Duration // moving average of answered requests
		until    time.Time     // the circuit is open until then
		pause    time.Duration // for how long it was opened last
		explored time.Time     // when a request was last attracted to keep the estimate current
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
	// A request's limit is patience times what the source takes, but at least hedge.
	patience = 8
	hedge    = 100 * time.Millisecond

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

// arrival predicts how long a request would take that begins now, in seconds, if reads from the
// source take so long. A node that was not chosen for some time is explored, to keep its estimate
// current: one request is attracted by an arrival of 0.
func (c *circuit) arrival(now time.Time, bytes int64, source float64) float64 {
	c.mu.Lock()
	cold, waited := c.mu.cold, c.mu.waited
	c.mu.Unlock()
	seconds := c.meter.Arrival(now, bytes, waited) + cold*source
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

// ask returns the node's fetcher, the time limit of a request that begins now, and for how long the
// node may answer no request at all. The node may have to read the sample from the source, which
// takes it as long as it takes this node.
func (c *circuit) ask(now time.Time, source time.Duration) (f Fetcher, limit, bound time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.silent.IsZero() {
		c.mu.silent = now
	}
	return c.mu.fetcher, min(max(patience*source, hedge), longest),
		min(max(patience*max(c.mu.latency, source), shortest), longest)
}

// late notes that a request was not answered in time, and returns the error: errLate, unless the
// node counts as silent.
func (c *circuit) late(now time.Time, bound time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	silent := now.Sub(c.mu.silent)
	switch {
	case c.mu.silent.IsZero(): // another request was answered since
	case silent >= bound, c.mu.reported:
		return late(fmt.Sprintf("no answer for %v", silent.Round(time.Millisecond)))
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

func (c *circuit) state(now time.Time) stats.Peer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return stats.Peer{
		Alive: c.mu.alive, Latency: c.mu.latency.Nanoseconds(), Failed: c.mu.failed,
		Reason:   c.mu.reason,
		Bypassed: !c.mu.alive || now.Before(c.mu.until),
	}
}
