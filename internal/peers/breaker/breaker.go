// Package breaker reads samples from the other nodes of a job, with a circuit breaker per node: it
// has the owner of each sample, and records which nodes are worth asking at the moment.
//
// A node that is dead, hangs, or sends corrupt data is bypassed: its samples are read from the
// source until it works again. A request that takes much longer than the source would is given up.
// That costs time and bytes, but never changes data or order.
//
// A Set is safe for concurrent use. It starts no goroutine and closes nothing.
package breaker

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/model/routing"
	"github.com/hdmlp/hdmlp/internal/peers/exchange"
	"github.com/hdmlp/hdmlp/internal/report"
)

// Fetcher fetches samples from one node; *exchange.Client implements it.
type Fetcher interface {
	Fetch(ctx context.Context, id int32, dst []byte, w exchange.Want) (exchange.Answer, error)
}

// Options configure a Set.
type Options struct {
	Node  int              // this node
	Peers []Fetcher        // by node; nil for this one
	Now   func() time.Time // nil: time.Now
	// Timeout is how long a read may take in all, from a node and then from the source; 0: no limit.
	Timeout time.Duration
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
		c := &circuit{remote: f != nil, timeout: o.Timeout}
		c.meter.Know(model.GuessedPeer)
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
func (s *Set) Know(k model.Known) {
	for _, c := range s.circuits {
		c.meter.Know(k)
	}
}

// Known returns what is known of reads from other nodes of samples of size MB: the median over the
// nodes that were measured, if any was.
func (s *Set) Known(size float64) model.Known {
	var nodes []model.Node
	for _, c := range s.circuits {
		if c.remote {
			nodes = append(nodes, model.Node{Network: c.meter.Known()})
		}
	}
	return model.Merge(nodes, size).Network
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

// Owner reports whether another node owns the sample and is worth asking now, and predicts how long
// it would take to fetch the sample, of this many bytes, if the source is predicted to take so many
// seconds. What the owner waits for the source does not count, if it has to read the sample: that
// wait is the source's, and a second read of the sample by this node would make it longer for both.
func (s *Set) Owner(id int, bytes int64, source float64) (t routing.Tier, ok bool) {
	_, c := s.of(id)
	if c == nil {
		return t, false
	}
	now := s.now()
	if !c.worth(id, now) {
		return t, false
	}
	return c.tier(now, bytes, source), true
}

// Relays reports whether the sample's owner has had to read most samples that it was asked for
// lately, or has not answered yet.
func (s *Set) Relays(id int) bool {
	_, c := s.of(id)
	return c != nil && c.relays()
}

// Fetch fetches a sample, or a form of it, if w takes one, from its owner into dst. On any error
// the caller should read the sample from the source, for which source is an estimate at the time of
// the call; the error is context.DeadlineExceeded if that is faster than to wait for the answer.
// That may take until the sample is due in any case, up to routing.ExpectedLimit.
//
// Predictions are of the sample's bytes. A form has up to 1.5 times as many, of photographs 1.05 to
// 1.2; what is measured are the bytes that were sent.
func (s *Set) Fetch(ctx context.Context, id int, dst []byte, w routing.Want,
	source func() time.Duration, due time.Duration,
) (routing.Answer, error) {
	n, c := s.of(id)
	if c == nil {
		return routing.Answer{Node: -1}, fmt.Errorf("sample %d: %w", id, ErrBypassed)
	}
	begun := s.now()
	takes := source()
	fetcher, asked := c.ask(begun, int64(w.Size), due, takes)
	within, end := limited(ctx, asked.Limit(takes, c.timeout), func() time.Duration {
		return asked.Limit(source(), c.timeout)
	})
	defer end()
	read := c.meter.Begin(begun, w.Size)
	answer, err := fetcher.Fetch(within, int32(id), dst, w)
	answer.Node = n
	read.Waited = answer.Waited
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		c.meter.GiveUp(s.now(), read)
		err = fmt.Errorf("sample %d: %w", id, c.late(s.now(), asked, source()))
	} else {
		if answer.Kind != 0 {
			c.meter.Grow(&read, 0, int64(answer.Size-w.Size))
		}
		c.meter.End(s.now(), read, err)
	}
	if ctx.Err() == nil {
		s.report(n, c.answered(s.now(), asked, s.now().Sub(begun), answer.Waited, err))
	}
	return answer, err
}

func (s *Set) report(node int, text string) {
	if text != "" {
		s.tell(node, text)
	}
}

// States returns the state of all other nodes.
func (s *Set) States() []report.Peer {
	var out []report.Peer
	for n, c := range s.circuits {
		if c.remote {
			state := c.state(s.now())
			state.Node = n
			out = append(out, state)
		}
	}
	return out
}
