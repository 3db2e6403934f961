// Package lockstep ends the streams of a job's ranks at the same batch when one of them cannot go
// on (Stops), over all nodes.
//
// It is a state machine without a network and without a clock: what nodes tell each other is data
// (Stop), which the coordinator carries. Its methods are safe for concurrent use. testdata has
// transcripts of what happens when.
package lockstep

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/hdmlp/hdmlp/internal/failure"
	"github.com/hdmlp/hdmlp/internal/invariants"
)

// Stops makes the error that one rank's stream ends with the end of all ranks' streams, and at the
// same batch: every rank gets what comes before it, and then the error. A rank that got that batch
// would go into a step for which another has no samples, and wait for it, in an allreduce, until a
// user kills it. So the news overtakes batches that are on their way to a process
// (staging.Buffer.End). Rejected: to end the others where they are. The rank that stopped would
// wait in the same way for those that are behind it; and it is staged ahead, so that its loop may
// break off before the batch, and no rank would have had to stop.
//
// Ranks catch the error and begin again, not at the same time, and nodes hear late of each other.
// So each rank counts rounds, from 0: one more when a run of it ends with an error, its own or
// another rank's. A stop is of its run's round. It concerns the runs of other ranks that are in
// this round or before, unless they begin behind its batch. From that follows:
//
//   - Each rank gets one error per round, whichever others stop in it, and in whatever order that is heard.
//   - A rank that was told and begins again is not told again, whether the one that stopped has begun again or not.
//   - A rank that begins when the one that stopped has begun again joins it: it goes on to its round, and is told nothing.
//   - A run that a stop concerns ends with it, also if the rank that stopped begins again meanwhile: that one may have gone back to
//     where the others must go back to as well.
//   - Where several ranks stop in a round, all end before the first of their batches, though each may name its own error.
type Stops struct {
	node int    // this one
	host string // its name; empty: the job has one node

	mu      sync.Mutex
	last    map[int]Stop     // by rank, of all nodes
	rounds  map[int]int      // by rank, of this node
	runs    map[int]*Run     // the last one of each rank of this node, though it may have ended
	version int              // counts changes of this node's own stops
	changed chan struct{}    // closed and replaced with each
	say     func(told error) // of each stop, once; for the log
}

// Stop is the end of a rank's stream with an error, as nodes tell each other.
type Stop struct {
	Rank  int    `json:"rank"`
	Node  int    `json:"node"`
	Host  string `json:"host"`
	Round int    `json:"round"`
	// the batch that could not be delivered: steps, counted through all epochs
	At    int           `json:"at"`
	Over  bool          `json:"over"` // the rank has begun again
	Error failure.Error `json:"error"`
}

// told is the error for the other ranks: of the same kind, with the same details, and where it
// happened.
func (p *Stop) told() error {
	e := p.Error
	e.Details = maps.Clone(e.Details)
	if e.Details == nil {
		e.Details = map[string]any{}
	}
	where := fmt.Sprintf("rank %d", p.Rank)
	e.Details["rank"] = p.Rank
	if p.Host != "" {
		where += fmt.Sprintf(" on node %d (%s)", p.Node, p.Host)
		e.Details["node"], e.Details["host"] = p.Node, p.Host
	}
	e.Message = where + " stopped: " + e.Message
	return &e
}

// Run is a rank's way through the stream, from Begin to End. Its states:
//
//   - running: batches are handed on; stop, if there is one, lies ahead.
//   - stopped: all batches before stop.At were handed on; Hand hands on no more, and the run is cancelled.
//   - ended: after an End with an error, which its process may not have come to yet. Only stop may still become an
//     earlier one. An End without one, or of a rank that goes on, forgets the run.
//
// Its fields are guarded by Stops.mu, but for those that Begin sets.
type Run struct {
	stops *Stops
	rank  int
	from  int // the batch that it begins with, counted as stop.At
	// Both are called under stops.mu.
	cancel func()       // ends it
	note   func(at int) // tells its process at once of stop.At; negative: there is none

	round int
	next  int   // the batch that comes next
	stop  *Stop // it ends before stop.At; nil: no rank has stopped
	lost  error // that a batch could not be handed on: the process is gone
	ended bool
}

// errStopped ends a run's staging; its process gets stop.told instead.
var errStopped = errors.New("another rank has stopped")

// New returns the stops of a job that no rank has begun. host is the node's name, empty if the job
// has one node; say is called with each stop once, for the log.
func New(node int, host string, say func(told error)) *Stops {
	return &Stops{
		node: node, host: host, say: say,
		last: make(map[int]Stop), rounds: make(map[int]int), runs: make(map[int]*Run),
		changed: make(chan struct{}),
	}
}

// Begin notes that a rank of this node begins a run. A rank has one at a time.
func (s *Stops) Begin(rank, at int, cancel func(), note func(at int)) *Run {
	s.mu.Lock()
	defer s.mu.Unlock()
	if was := s.runs[rank]; was != nil {
		invariants.Check(was.ended, "rank %d begins a run at %d within another one", rank, at)
	}
	r := &Run{stops: s, rank: rank, from: at, next: at, cancel: cancel, note: note}
	note(-1)
	s.runs[rank] = r
	if own, ok := s.last[rank]; ok && !own.Over {
		own.Over = true
		s.last[rank] = own
		s.signal()
	}
	r.round = s.rounds[rank]
	for n, p := range s.last {
		if p.Over && n != rank {
			r.round = max(r.round, p.Round+1)
		}
	}
	for _, n := range slices.Sorted(maps.Keys(s.last)) {
		s.apply(r, s.last[n])
	}
	return r
}

// apply has a run end with a stop, if this concerns it. One that has ended with an error, which its
// process may not have come to, ends with it before that batch if it is an earlier one. s.mu is
// held.
func (s *Stops) apply(r *Run, p Stop) {
	switch {
	case p.Rank == r.rank || p.Round < r.round:
	case r.ended && (p.Round > r.round || p.At >= r.next):
	case p.At < r.from:
		r.round = p.Round + 1 // it is past what happened in that round
	case r.stop == nil || p.At < r.stop.At:
		r.stop = &p
		r.note(p.At)
		if r.next >= p.At {
			r.cancel()
		}
	}
}

// Hand hands the next batch on by emit, unless the run ends before it.
func (r *Run) Hand(emit func() error) error {
	s := r.stops
	s.mu.Lock()
	stopped := r.stopped()
	invariants.Check(!r.ended, "rank %d hands a batch on after the end of its run", r.rank)
	s.mu.Unlock()
	if stopped {
		return errStopped
	}
	err := emit()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		r.lost = err
		return err
	}
	if r.next++; r.stopped() {
		r.cancel() // the batch that it waits for now is not to come
	}
	return nil
}

// stopped reports whether the run has come to its end. stops.mu is held.
func (r *Run) stopped() bool { return r.stop != nil && r.next >= r.stop.At }

// Last is the last batch that was handed on, counted as Stop.At; any reports whether there was one.
// It is for the goroutine that calls Hand.
func (r *Run) Last() (at int, any bool) { return r.next - 1, r.next > r.from }

// End notes that a run has ended, with err, and returns what its process is told. interrupted: the
// process has asked for another run, or is gone.
func (r *Run) End(err error, interrupted bool) error {
	s := r.stops
	s.mu.Lock()
	defer s.mu.Unlock()
	invariants.Check(!r.ended && s.runs[r.rank] == r, "a run of rank %d ends twice", r.rank)
	invariants.Check(s.rounds[r.rank] <= r.round, "rank %d goes back from round %d to %d", r.rank,
		s.rounds[r.rank], r.round)
	s.rounds[r.rank] = r.round
	canceled := errors.Is(err, errStopped) || errors.Is(err, context.Canceled)
	if interrupted || r.lost != nil || (err == nil || canceled) && !r.stopped() {
		delete(s.runs, r.rank)
		return err
	}
	r.ended = true
	s.rounds[r.rank]++
	if err != nil && !canceled {
		p := Stop{
			Rank:  r.rank,
			Node:  s.node,
			Host:  s.host,
			Round: r.round,
			At:    r.next,
			Error: *failure.Of(err),
		}
		s.last[r.rank] = p
		for _, other := range s.runs {
			s.apply(other, p)
		}
		s.signal()
		s.say(p.told())
	}
	if r.stop != nil && r.stop.At < r.next || err == nil || canceled {
		s.rounds[r.rank] = max(s.rounds[r.rank], r.stop.Round+1)
		return r.stop.told()
	}
	return err
}

// Leave forgets the last run of a rank of this node, whose process is gone; it must have ended.
func (s *Stops) Leave(rank int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.runs, rank)
}

// Own lists the last stop of each rank of this node that ever stopped, by rank. version is another
// one whenever the list is; changed is closed when it becomes another one.
func (s *Stops) Own() (list []Stop, version int, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, rank := range slices.Sorted(maps.Keys(s.last)) {
		if p := s.last[rank]; p.Node == s.node {
			list = append(list, p)
		}
	}
	return list, s.version, s.changed
}

// Hear takes in what another node's Own is. It may be heard late, and again.
func (s *Stops) Hear(list []Stop) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range list {
		known, ok := s.last[p.Rank]
		switch {
		case p.Node == s.node || ok && (known.Node != p.Node || p.Round < known.Round):
		case ok && p.Round == known.Round:
			known.Over = known.Over || p.Over
			s.last[p.Rank] = known
		default:
			s.last[p.Rank] = p
			for _, r := range s.runs {
				s.apply(r, p)
			}
			s.say(p.told())
		}
	}
}

// signal wakes what waits for changes of this node's own stops. s.mu is held.
func (s *Stops) signal() {
	s.version++
	close(s.changed)
	s.changed = make(chan struct{})
}

// Decode reads what another node's Own was, of a job of so many ranks on so many nodes. A list of
// which any cannot be is refused as a whole.
func Decode(text []byte, ranks, nodes int) ([]Stop, error) {
	var list []Stop
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, err
	}
	for _, p := range list {
		if p.Rank < 0 || p.Rank >= ranks || p.Node < 0 || p.Node >= nodes || p.Round < 0 ||
			p.At < 0 {
			return nil,
				fmt.Errorf("rank %d of node %d stops before batch %d in round %d; there are %d "+
					"ranks on %d nodes",
					p.Rank, p.Node, p.At, p.Round, ranks, nodes)
		}
	}
	return list, nil
}
