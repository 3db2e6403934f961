package job

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/hdmlp/hdmlp/internal/protocol"
)

// stops makes the error that one rank's stream ends with the end of all ranks' streams, and at the same batch: every rank gets
// what comes before it, and then the error. A rank that got that batch would go into a step for which another has no samples, and
// wait for it, in an allreduce, until somebody kills it. So the news overtakes batches that are on their way to a process
// (staging.Buffer.End). Rejected: to end the others where they are. The rank that stopped would wait in the same way for those
// that are behind it; and it is staged ahead, so that its loop may break off before the batch, and nobody would have had to stop.
//
// Ranks catch the error and begin again, not at the same time, and nodes hear late of each other. So each rank counts rounds, from 0: one more
// when a run of it ends with an error, its own or another rank's. A stop is of its run's round. It concerns the runs of other
// ranks that are in this round or before, unless they begin behind its batch. From that follows:
//
//   - Each rank gets one error per round, whoever else stops in it, and in whatever order that is heard.
//   - A rank that was told and begins again is not told again, whether the one that stopped has begun again or not.
//   - A rank that begins when the one that stopped has begun again joins it: it goes on to its round, and is told nothing.
//   - A run that a stop concerns ends with it, also if the rank that stopped begins again meanwhile: that one may have gone back to
//     where the others must go back to as well.
//   - Where several ranks stop in a round, all end before the first of their batches, though each may name its own error.
//
// It is a state machine without a network; its methods are safe for concurrent use.
type stops struct {
	node int    // this one
	host string // its name; empty: the job has one node

	mu      sync.Mutex
	last    map[int]stop     // by rank, of all nodes
	rounds  map[int]int      // by rank, of this node
	runs    map[int]*run     // the last one of each rank of this node, though it may have ended
	version int              // counts changes of this node's own stops
	changed chan struct{}    // closed and replaced with each
	say     func(told error) // of each stop, once; for the log
}

// stop is the end of a rank's stream with an error, as nodes tell each other.
type stop struct {
	Rank  int                   `json:"rank"`
	Node  int                   `json:"node"`
	Host  string                `json:"host"`
	Round int                   `json:"round"`
	At    int                   `json:"at"`   // the batch that could not be delivered: steps, counted through all epochs
	Over  bool                  `json:"over"` // the rank has begun again
	Error protocol.ErrorMessage `json:"error"`
}

// told is the error for the other ranks: of the same kind, with the same details, and where it happened.
func (p *stop) told() error {
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

// run is one Rank.Run. Its fields are guarded by stops.mu, but for what begin sets.
type run struct {
	stops *stops
	rank  int
	from  int // the batch that it begins with, counted as stop.At
	// Both are called under stops.mu.
	cancel func()       // ends it
	note   func(at int) // tells its process at once of stop.At; negative: there is none

	round int
	next  int   // the batch that comes next
	stop  *stop // it ends before stop.At; nil: nobody has stopped
	lost  error // that a batch could not be handed on: the process is gone
	ended bool
}

// errStopped ends a run's staging; its process gets stop.told instead.
var errStopped = errors.New("another rank has stopped")

func newStops(node int, host string, say func(told error)) *stops {
	return &stops{
		node: node, host: host, say: say,
		last: make(map[int]stop), rounds: make(map[int]int), runs: make(map[int]*run), changed: make(chan struct{}),
	}
}

// begin notes that a rank of this node begins a run. A rank has one at a time.
func (s *stops) begin(rank, at int, cancel func(), note func(at int)) *run {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &run{stops: s, rank: rank, from: at, next: at, cancel: cancel, note: note}
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

// apply has a run end with a stop, if this concerns it. One that has ended with an error, which its process may not have come to, ends with it before
// that batch if it is an earlier one. s.mu is held.
func (s *stops) apply(r *run, p stop) {
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

// hand hands the next batch on by emit, unless the run ends before it.
func (r *run) hand(emit func() error) error {
	s := r.stops
	s.mu.Lock()
	stopped := r.stopped()
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

// stopped tells whether the run has come to its end. stops.mu is held.
func (r *run) stopped() bool { return r.stop != nil && r.next >= r.stop.At }

// end notes that a run has ended, with err, and returns what its process is told. interrupted: the process has asked for another run,
// or is gone.
func (r *run) end(err error, interrupted bool) error {
	s := r.stops
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rounds[r.rank] = r.round
	canceled := errors.Is(err, errStopped) || errors.Is(err, context.Canceled)
	if interrupted || r.lost != nil || (err == nil || canceled) && !r.stopped() {
		delete(s.runs, r.rank)
		return err
	}
	r.ended = true
	s.rounds[r.rank]++
	if err != nil && !canceled {
		p := stop{Rank: r.rank, Node: s.node, Host: s.host, Round: r.round, At: r.next, Error: *Message(err)}
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

// leave forgets the last run of a rank of this node, whose process is gone; it must have ended.
func (s *stops) leave(rank int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.runs, rank)
}

// own lists the last stop of each rank of this node that ever stopped, by rank. version is another one whenever the list is; changed is
// closed when it becomes another one.
func (s *stops) own() (list []stop, version int, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, rank := range slices.Sorted(maps.Keys(s.last)) {
		if p := s.last[rank]; p.Node == s.node {
			list = append(list, p)
		}
	}
	return list, s.version, s.changed
}

// hear takes in what another node's own is. It may be heard late, and again.
func (s *stops) hear(list []stop) {
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

// signal wakes who waits for changes of this node's own stops. s.mu is held.
func (s *stops) signal() {
	s.version++
	close(s.changed)
	s.changed = make(chan struct{})
}
