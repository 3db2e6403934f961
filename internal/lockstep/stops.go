// Package lockstep ends the streams of a job's ranks at the same batch, over all nodes, when one of
// them cannot go on (Stops).
//
// It is a state machine without network and clock: what nodes tell each other is data (Stop), which
// package coordinator transmits. Its methods are safe for concurrent use. testdata/stops has
// transcripts of typical sequences.
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

// Stops turns the error that ends one rank's stream into the end of all ranks' streams at the same
// batch: every rank gets the batches before it, and then the error. A rank that got that batch
// would start a step for which another rank has no samples, and wait for it in an allreduce until
// it is killed. So the news overtakes batches that were already sent to a process
// (staging.Buffer.End). Rejected: ending the other streams where they are. The rank that stopped
// would then wait in an allreduce for slower ranks; and since it is staged ahead of its training
// loop, the loop may break off before the failed batch, and no rank would have had to stop.
//
// Ranks catch the error and begin again at different times, and nodes learn of each other with a
// delay. So each rank counts failure epochs, here called rounds, from 0: the count increases when
// its process has come to the error of a run, its own or another rank's. A stop belongs to the
// round of its run. It applies to runs that are in this round or an earlier one, unless they begin
// after its batch; a run that goes on where the one before came to its end (stretch) does not. It
// follows:
//
//   - Each rank gets one error per round, however many others stop in it, and in whatever order
//     nodes learn of it.
//   - A rank that was told and begins again is not told again, whether or not the one that stopped
//     has begun again.
//   - A rank that begins after the one that stopped has begun again joins its round, and is told
//     nothing.
//   - A run that a stop applies to ends with it even if the rank that stopped begins again
//     meanwhile: that rank may have gone back to where the others must go back to as well.
//   - If several ranks stop in a round, all end before the first of their batches, though each may
//     report its own error.
//   - A loop that breaks off before it has come to the error, and begins again before the batch,
//     still gets the error there: a stop of which others know cannot be taken back. Counting it as
//     an error that the rank has had would leave ranks in different rounds, as some of their runs
//     may have ended with it by then, and others not.
type Stops struct {
	node int    // this node's number
	host string // this node's host name; empty if the job has one node

	mu      sync.Mutex       // guards the following
	last    map[int]Stop     // by rank, over all nodes
	rounds  map[int]int      // by rank, of this node, how many errors its processes have come to
	runs    map[int]*Run     // the latest run of each rank of this node, which may have ended
	ends    map[int]stretch  // by rank of this node, where its last run came to its end
	version int              // counts changes of this node's own stops
	changed chan struct{}    // closed and replaced with each version
	say     func(told error) // called once per stop, for the log
}

// Stop is the end of a rank's stream with an error, as sent between nodes.
type Stop struct {
	Rank  int    `json:"rank"`
	Node  int    `json:"node"`
	Host  string `json:"host"`
	Round int    `json:"round"`
	// At is the batch that could not be delivered, in steps counted over all epochs.
	At    int           `json:"at"`
	Over  bool          `json:"over"` // the rank has come to it, and has begun again
	Error failure.Error `json:"error"`
}

// told returns the error for the other ranks: with the same kind and details, and where it
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

// Run is one pass of a rank through the stream, from Begin to End. Its states:
//
//   - running: batches are delivered; stop, if set, lies ahead.
//   - stopped: all batches before stop.At were delivered; Deliver refuses more, and the run is
//     cancelled.
//   - ended: after an End with an error that the process may not have come to yet. stop may only
//     still change to an earlier one. An End without an error, or of a rank that goes on, forgets
//     the run.
//
// Its fields are guarded by Stops.mu, except those that Begin sets.
type Run struct {
	stops *Stops
	rank  int
	from  int // the first batch, counted like Stop.At
	since int // the first batch of the stretch of runs that this one goes on with
	// cancel and note are called with Stops.mu held.
	cancel func()       // ends the run
	note   func(at int) // publishes stop.At to the process at once; negative: none

	round int
	next  int   // the next batch
	taken int   // the first batch that the process has not taken
	stop  *Stop // the run ends before stop.At; nil: no rank has stopped
	lost  error // error of a batch that could not be sent, because the process is gone
	ended bool
}

// stretch is the batches of runs that follow on each other. Where ranks give orders, each epoch has
// a run of its own, but a rank that goes on with the next epoch has not begun again: it is told of
// a stop in the epoch that it has just come to the end of.
type stretch struct{ since, end int }

// errStopped ends a run's staging; its process gets stop.told() instead.
var errStopped = errors.New("another rank has stopped")

// New returns the stops of a job before any rank has begun. host is the node's name, empty if the
// job has one node. say is called once for each stop, for the log.
func New(node int, host string, say func(told error)) *Stops {
	return &Stops{
		node: node, host: host, say: say,
		last: make(map[int]Stop), rounds: make(map[int]int), runs: make(map[int]*Run),
		ends: make(map[int]stretch), changed: make(chan struct{}),
	}
}

// Begin starts a run of a rank of this node at batch at. A rank has at most one run at a time.
// cancel ends the run; note publishes to the process before which batch its stream ends, or a
// negative number if it does not. Both are called with Stops' lock held.
func (s *Stops) Begin(rank, at int, cancel func(), note func(at int)) *Run {
	s.mu.Lock()
	defer s.mu.Unlock()
	if was := s.runs[rank]; was != nil {
		invariants.Check(was.ended, "rank %d begins a run at %d within another one", rank, at)
		if end := was.end(); was.taken >= end || at >= end {
			s.rounds[rank] = was.after()
		}
	}
	r := &Run{
		stops: s, rank: rank, from: at, since: at, next: at, taken: at, cancel: cancel, note: note,
	}
	if before, ok := s.ends[rank]; ok && before.end == at {
		r.since = before.since
	}
	delete(s.ends, rank)
	note(-1)
	s.runs[rank] = r
	own, ok := s.last[rank]
	if ok && !own.Over && (own.Round < s.rounds[rank] || own.At < r.since) {
		own.Over = true
		s.last[rank] = own
		s.signal()
	}
	r.round = s.rounds[rank]
	for _, p := range s.last {
		if p.Over {
			r.round = max(r.round, p.Round+1)
		}
	}
	for _, n := range slices.Sorted(maps.Keys(s.last)) {
		s.apply(r, s.last[n])
	}
	return r
}

// apply makes run r end with stop p if p applies to it. A run that has ended with an error of its
// own ends with p if p's batch is earlier, unless its process has come to its end and p is of a
// later round, which is for the next run. s.mu must be held.
func (s *Stops) apply(r *Run, p Stop) {
	switch {
	case p.Round < r.round:
	case r.ended && (p.At >= r.next || p.Round > r.round && r.taken >= r.end()):
	case p.At < r.since:
		r.round = p.Round + 1 // it begins after what happened in that round
	case r.stop == nil || p.At < r.stop.At:
		r.stop = &p
		r.note(p.At)
		if r.next >= p.At {
			r.cancel()
		}
	}
}

// Deliver sends the next batch by calling emit, unless the run ends before it.
func (r *Run) Deliver(emit func() error) error {
	s := r.stops
	s.mu.Lock()
	stopped := r.stopped()
	invariants.Check(!r.ended, "rank %d delivers a batch after the end of its run", r.rank)
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
		r.cancel() // the batch that it is waiting for will not come
	}
	return nil
}

// stopped reports whether the run has reached its stop. stops.mu must be held.
func (r *Run) stopped() bool { return r.stop != nil && r.next >= r.stop.At }

// Last returns the last batch that was delivered, counted like Stop.At; any reports whether there
// was one. Only the goroutine that calls Deliver may call it.
func (r *Run) Last() (at int, any bool) { return r.next - 1, r.next > r.from }

// End ends the run with err, and returns the error for its process. interrupted reports that the
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
		if err == nil && !interrupted && r.lost == nil {
			s.ends[r.rank] = stretch{r.since, r.next}
		}
		return err
	}
	r.ended = true
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
	switch {
	case (r.stop == nil || r.stop.At >= r.next) && err != nil && !canceled:
		return err
	case r.stop.Rank == r.rank:
		return &r.stop.Error
	}
	return r.stop.told()
}

// end returns the batch instead of which the process gets the error of a run that has ended.
// stops.mu must be held.
func (r *Run) end() int {
	if r.stop != nil {
		return min(r.next, r.stop.At)
	}
	return r.next
}

// after returns the rank's round after its process has come to the error of a run that has ended.
// stops.mu must be held.
func (r *Run) after() int {
	if r.stop != nil {
		return max(r.round, r.stop.Round) + 1
	}
	return r.round + 1
}

// Took records that the process of a rank of this node has taken a batch of its run.
func (s *Stops) Took(rank, at int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.runs[rank]; r != nil {
		r.taken = at + 1
	}
}

// Leave forgets the runs of a rank of this node whose process is gone. The last must have ended.
func (s *Stops) Leave(rank int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.runs[rank]; r != nil {
		s.rounds[rank] = r.after()
	}
	if own, ok := s.last[rank]; ok {
		s.rounds[rank] = max(s.rounds[rank], own.Round+1)
	}
	delete(s.runs, rank)
	delete(s.ends, rank)
}

// Own returns the last stop of each rank of this node that ever stopped, ordered by rank. version
// changes whenever the list does, and changed is closed then.
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

// Hear merges another node's Own list. Lists may arrive late and more than once.
func (s *Stops) Hear(list []Stop) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range list {
		known, ok := s.last[p.Rank]
		switch {
		case p.Node == s.node || ok && (known.Node != p.Node || p.Round < known.Round):
		case ok && p.Round == known.Round && p.At >= known.At:
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

// signal wakes goroutines that wait for changes of this node's own stops. s.mu must be held.
func (s *Stops) signal() {
	s.version++
	close(s.changed)
	s.changed = make(chan struct{})
}

// Decode decodes another node's Own list, for a job with the given numbers of ranks and nodes. It
// returns an error if any entry is out of range.
func Decode(text []byte, ranks, nodes int) ([]Stop, error) {
	var list []Stop
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, err
	}
	for _, p := range list {
		if p.Rank < 0 || p.Rank >= ranks || p.Node < 0 || p.Node >= nodes || p.Round < 0 ||
			p.At < 0 {
			return nil,
				fmt.Errorf("rank %d of node %d stops before batch %d in round %d; the job has "+
					"%d ranks on %d nodes", p.Rank, p.Node, p.At, p.Round, ranks, nodes)
		}
	}
	return list, nil
}
