// Package breaker is a circuit breaker over the other nodes of a job, which makes them one place to
// read samples from: it knows which node answers for a sample, and which of them is worth asking
// now.
//
// A node that is dead, hangs, is much slower than the source, or sends something else than was
// asked for is passed by: its samples are read from the source until it is well again. That costs
// time and bytes, never data or order (DESIGN 7: never wait for one place).
//
// A Set is safe for concurrent use. It starts no goroutine, and closes nothing.
package breaker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hdmlp/hdmlp/internal/exchange"
	"github.com/hdmlp/hdmlp/internal/stats"
)

// Fetcher brings samples from one node; an *exchange.Client is one.
type Fetcher interface {
	Fetch(ctx context.Context, id int32, dst []byte) (digest uint32, err error)
}

// Options say what a Set consists of.
type Options struct {
	Node  int       // this node
	Peers []Fetcher // by node; nil for this one
	// Source is how long a read from the source takes at the moment; 0: not known.
	Source func() time.Duration
	Now    func() time.Time // nil: time.Now
	// told when a node is passed by, and when it is asked again; nil: nobody
	Tell func(node int, text string)
}

// ErrPassedBy: the node is not asked at the moment.
var ErrPassedBy = errors.New("the node that answers for the sample is passed by")

// errSilent: the node took too long.
var errSilent = errors.New("no answer")

// Set is the other nodes.
type Set struct {
	node     int
	source   func() time.Duration
	now      func() time.Time
	tell     func(node int, text string)
	owner    atomic.Pointer[func(id int) int] // nil: nobody answers for anything yet
	circuits []*circuit
}

// NewSet returns a set of nodes that are all alive. Nobody answers for anything before SetOwner.
func NewSet(o Options) *Set {
	s := &Set{node: o.Node, source: o.Source, now: o.Now, tell: o.Tell}
	if s.source == nil {
		s.source = func() time.Duration { return 0 }
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.tell == nil {
		s.tell = func(int, string) {}
	}
	for _, f := range o.Peers {
		c := &circuit{remote: f != nil}
		c.mu.fetcher = f
		c.mu.alive = true
		s.circuits = append(s.circuits, c)
	}
	return s
}

// SetOwner says which node answers for each sample: -1, or one of the nodes.
func (s *Set) SetOwner(owner func(id int) int) { s.owner.Store(&owner) }

// SetAlive says whether a node is there.
func (s *Set) SetAlive(node int, alive bool) {
	if uint(node) < uint(len(s.circuits)) {
		s.say(node, s.circuits[node].setAlive(alive))
	}
}

// of returns the node that answers for the sample, if it is another one.
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

// Answers tells whether another node answers for the sample, and is worth asking now.
func (s *Set) Answers(id int) bool {
	_, c := s.of(id)
	return c != nil && c.worth(s.now(), s.source())
}

// Fetch brings a sample from the node that answers for it, and returns the node and the digest of
// the sample's bytes. Any error means: read it from the source.
func (s *Set) Fetch(ctx context.Context, id int, dst []byte) (node int, digest uint32, err error) {
	n, c := s.of(id)
	if c == nil {
		return -1, 0, fmt.Errorf("sample %d: %w", id, ErrPassedBy)
	}
	fetcher, bound := c.ask(s.source())
	within, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	begun := s.now()
	digest, err = fetcher.Fetch(within, int32(id), dst)
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("sample %d: %w within %v", id, errSilent, bound)
	}
	if ctx.Err() == nil {
		s.say(n, c.answered(s.now(), s.now().Sub(begun), err))
	}
	return n, digest, err
}

func (s *Set) say(node int, text string) {
	if text != "" {
		s.tell(node, text)
	}
}

// States describes all other nodes.
func (s *Set) States() []stats.Peer {
	var out []stats.Peer
	for n, c := range s.circuits {
		if c.remote {
			state := c.state(s.now(), s.source())
			state.Node = n
			out = append(out, state)
		}
	}
	return out
}

// circuit is the breaker of one node.
type circuit struct {
	remote bool // it is not this node
	mu     struct {
		sync.Mutex
		fetcher Fetcher
		alive   bool
		latency time.Duration // moving average of requests that were answered
		until   time.Time     // passed by until then
		pause   time.Duration // how long it was passed by last
		skipped int           // requests that were not made because it is slow
		said    bool          // that it is passed by
		failed  int64
		reason  string
	}
}

const (
	shortest = 2 * time.Second  // the least that a request may take before its node is passed by
	longest  = 10 * time.Second // the most
	// times the average, or times what the source takes: that is too slow
	patience = 8
	slack    = 500 * time.Millisecond
	// one of so many requests goes to a node that is too slow, to see whether it still is
	probe = 64

	firstPause = 500 * time.Millisecond
	lastPause  = 30 * time.Second
)

// worth tells whether the node is worth asking.
func (c *circuit) worth(now time.Time, source time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.mu.alive || now.Before(c.mu.until) {
		return false
	}
	if source <= 0 || c.mu.latency <= patience*source+slack {
		return true
	}
	c.mu.skipped++
	return c.mu.skipped%probe == 0
}

// ask returns the way to the node, and how long it may take: it may have to read the sample from
// the source, which takes it as long as it takes this node. As long as neither is known it may take
// longest.
func (c *circuit) ask(source time.Duration) (Fetcher, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	expected := max(c.mu.latency, source)
	if expected <= 0 {
		return c.mu.fetcher, longest
	}
	return c.mu.fetcher, min(max(patience*expected, shortest), longest)
}

// answered notes what became of a request, and returns what there is to say.
func (c *circuit) answered(now time.Time, took time.Duration, err error) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.mu.latency += (took - c.mu.latency) / 16
		if c.mu.latency == 0 {
			c.mu.latency = took
		}
		c.mu.pause = 0
		if c.mu.said {
			c.mu.said = false
			return "answers again"
		}
		return ""
	}
	c.mu.failed++
	c.mu.reason = err.Error()
	switch {
	case errors.Is(err, exchange.ErrNotHeld), errors.Is(err, exchange.ErrFailed):
		return "" // it is well
	case now.Before(c.mu.until):
		return "" // the others that were under way
	case errors.Is(err, exchange.ErrCorrupt), errors.Is(err, exchange.ErrRefused):
		c.mu.pause = lastPause
	default:
		c.mu.pause = min(max(2*c.mu.pause, firstPause), lastPause)
	}
	c.mu.until = now.Add(c.mu.pause)
	if c.mu.said {
		return ""
	}
	c.mu.said = true
	return fmt.Sprintf("is passed by, and its samples are read from the source: %v", err)
}

func (c *circuit) setAlive(alive bool) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.alive == alive {
		return ""
	}
	c.mu.alive = alive
	if alive {
		c.mu.until, c.mu.pause, c.mu.latency, c.mu.said = time.Time{}, 0, 0, false
		return "is there again"
	}
	return "is gone; its samples are read from the source, or taken over by other nodes"
}

func (c *circuit) state(now time.Time, source time.Duration) stats.Peer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return stats.Peer{
		Alive: c.mu.alive, Latency: c.mu.latency.Nanoseconds(), Failed: c.mu.failed,
		Reason: c.mu.reason,
		Asked: c.mu.alive && !now.Before(c.mu.until) &&
			(source <= 0 || c.mu.latency <= patience*source+slack),
	}
}
