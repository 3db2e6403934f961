// Package lockstep ends the streams of a job's ranks at the same batch, over all nodes, when one of
// them cannot go on (Stops).
//
// It is a state machine without network and clock: what nodes tell each other is data (Stop), which
// package coordinator transmits. Its methods are safe for concurrent use. testdata/stops has
// transcripts of typical sequences.
package lockstep

import (
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/hdmlp/hdmlp/internal/lib/invariants"
	"github.com/hdmlp/hdmlp/internal/node/failure"
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
// the error of a run, its own or another rank's, has been raised in its training loop. A stop
// belongs to the round of its run. It applies to runs of this round, unless they begin after its
// batch; a run that goes on where the one before came to its end (stretch) does not. It follows:
//
//   - Each rank gets one error per round, however many others stop in it, and in whatever order
//     nodes learn of it.
//   - A rank that got the error and begins again does not get it again, whether or not the one that
//     stopped has begun again.
//   - A rank that has yet to come to the batch of a stop, perhaps iterations behind, ends there,
//     whether or not the one that stopped has begun again. Only a process that has just taken its
//     place joins the round of one that has begun again, and gets no error.
//   - A rank that went on with that batch, and began again after it before the stop reached it, has
//     had no error, but counts one (past).
//   - A run that a stop applies to ends with it even if the rank that stopped begins again
//     meanwhile: that rank may have gone back to where the others must go back to as well.
//   - If several ranks stop in a round, all end before the first of their batches, though each may
//     report its own error.
//   - Loops that break off before the error, and begin again before the batch, still get the error
//     there; loops that begin again after it do not, and stay in the round, so that the other stops
//     of the round still apply. Which it is depends on the stop alone, never on what has reached a
//     rank by then: a loop may break off while a stop has reached some ranks, and not others.
//     Counting a stop that a loop steps over as an error would leave ranks in different rounds.
type Stops struct {
	node int    // this node's number
	host string // this node's host name; empty if the job has one node

	mu      sync.Mutex       // guards the following
	known   map[int][]Stop   // by rank, over all nodes: those of the last rounds
	rounds  map[int]int      // by rank, of this node, how many errors its processes have had
	runs    map[int]*Run     // the latest run of each rank of this node, which may have ended
	ends    map[int]stretch  // by rank of this node, where its last run came to its end
	pasts   map[int]*past    // by rank of this node, what it has had since its last error
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
	// Iteration counts how often its loop has begun again in the round, elsewhere than it was.
	Iteration int `json:"iteration"`
	// At is the batch that could not be delivered, in steps counted over all epochs.
	At     int           `json:"at"`
	Raised bool          `json:"raised"` // the rank's process has had an error at or before it
	Over   bool          `json:"over"`   // and the rank has begun again
	Error  failure.Error `json:"error"`
}

// The error for the other ranks has the same kind and details, and where it happened.
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

// New returns the stops of a job before any rank has begun. host is the node's name, empty if the
// job has one node. say is called once for each stop, for the log.
func New(node int, host string, say func(told error)) *Stops {
	return &Stops{
		node: node, host: host, say: say,
		known: make(map[int][]Stop), rounds: make(map[int]int), runs: make(map[int]*Run),
		ends: make(map[int]stretch), pasts: make(map[int]*past), changed: make(chan struct{}),
	}
}

// Begin starts a run of a rank of this node at batch at. A rank has at most one run at a time.
// cancel ends the run; note publishes to the process before which batch its stream ends, or a
// negative number if it does not. Both are called with Stops' lock held.
func (s *Stops) Begin(rank, at int, cancel func(), note func(at int)) *Run {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.runs[rank]
	invariants.Check(was == nil || was.ended, "rank %d begins a run at %d within another one", rank,
		at)
	r := &Run{
		stops: s, rank: rank, from: at, since: at, next: at, taken: at, cancel: cancel, note: note,
		round: s.rounds[rank],
	}
	if before, ok := s.ends[rank]; ok && before.end == at {
		r.since = before.since
	}
	delete(s.ends, rank)
	if was != nil {
		s.past(was)
	}
	r.past = s.pasts[rank]
	r.iteration = r.past.next(at)
	note(-1)
	s.runs[rank] = r
	for p := range s.all() {
		if p.Over && r.past == nil {
			r.round = max(r.round, p.Round+1)
		}
	}
	s.update()
	for i := range s.known[rank] {
		if own := &s.known[rank][i]; own.Round < r.round && !own.Over {
			own.Raised, own.Over = true, true
			s.signal()
		}
	}
	return r
}

// all yields the known stops, ordered by rank. s.mu must be held.
func (s *Stops) all() iter.Seq[Stop] {
	return func(yield func(Stop) bool) {
		for _, rank := range slices.Sorted(maps.Keys(s.known)) {
			for _, p := range s.known[rank] {
				if !yield(p) {
					return
				}
			}
		}
	}
}

// join makes run r count the error of stop p's round if it has begun after what happened there.
// s.mu must be held.
func (s *Stops) join(r *Run, p Stop) {
	if p.Raised && p.At < r.since && !r.ended && p.Round >= r.round && r.past.had(p) {
		r.round, r.iteration = p.Round+1, 0
	}
}

// apply makes run r end with stop p if p applies to it. A run that has ended with an error of its
// own ends with p if p's batch is earlier. s.mu must be held.
//
// A stop of a later round does not apply: its rank has had an error of r's round, which r gets
// sooner or later, and may have gone back from there. It does if r's round is forgotten, and
// nothing is known of it: this node was cut off for long.
func (s *Stops) apply(r *Run, p Stop) {
	missed := p.Round >= r.round+kept && r.stop == nil
	switch {
	case p.At < r.since || p.Round != r.round && !missed || r.ended && p.At >= r.next:
	case r.stop == nil || p.At < r.stop.At:
		r.stop = &p
		r.note(p.At)
		if r.next >= p.At {
			r.cancel()
		}
	}
}

// Took records that the process of a rank of this node has taken a batch of its run.
func (s *Stops) Took(rank, at int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.runs[rank]; r != nil {
		r.taken = at + 1
	}
}

// Raised records that the error with which the last run of a rank of this node ended has been
// raised in its process's training loop. It does nothing if the run has not ended, or was
// forgotten.
func (s *Stops) Raised(rank int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.runs[rank]; r != nil && r.ended {
		s.had(r)
	}
}

// had counts the error of a run that has ended, and forgets the run. s.mu must be held.
func (s *Stops) had(r *Run) {
	delete(s.runs, r.rank)
	s.rounds[r.rank] = r.after()
	s.pasts[r.rank] = &past{round: r.after()}
	// Those that the loop has stepped over are no errors that it had, and a run of another rank
	// that has begun after them still ends with others of the round.
	own := slices.DeleteFunc(slices.Clone(s.known[r.rank]), func(p Stop) bool {
		return !p.Raised && p.At < r.since
	})
	for i := range own {
		own[i].Raised = true
	}
	s.known[r.rank] = own
	s.update()
	s.signal()
}

// Leave forgets the runs of a rank of this node whose process is gone. The last must have ended. An
// error counts if the process had taken all batches before it: whether it was raised is unknown.
func (s *Stops) Leave(rank int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.runs[rank]; r != nil && r.taken >= r.end() {
		s.had(r)
	}
	delete(s.runs, rank)
	delete(s.ends, rank)
	delete(s.pasts, rank)
}

// Own returns the last stops of each rank of this node that ever stopped, ordered by rank. version
// changes whenever the list does, and changed is closed then.
func (s *Stops) Own() (list []Stop, version int, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.all() {
		if p.Node == s.node {
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
		if known := s.known[p.Rank]; p.Node != s.node && (len(known) == 0 || known[0].Node == p.Node) {
			s.learn(p)
		}
	}
}

// kept is of how many rounds a rank's stops are known: it may have begun again, and be staged ahead
// to the next error, or have had that at once, before others have had the one before.
const kept = 4

// learn adds a stop to those of its rank. s.mu must be held.
func (s *Stops) learn(p Stop) {
	known, isNews := s.known[p.Rank], true
	for i := range known {
		k := &known[i]
		if k.Round == p.Round && k.At == p.At {
			k.Raised, k.Over = k.Raised || p.Raised, k.Over || p.Over
			k.Iteration = max(k.Iteration, p.Iteration)
			isNews = false
		}
		if k.Round >= p.Round+kept {
			return
		}
	}
	if isNews {
		s.known[p.Rank] = append(slices.DeleteFunc(known, func(k Stop) bool {
			return k.Round <= p.Round-kept
		}), p)
		s.say(p.told())
	}
	s.update()
}

// update has the runs of this node follow the known stops. s.mu must be held.
func (s *Stops) update() {
	for _, r := range s.runs {
		for p := range s.all() {
			s.join(r, p)
		}
		for p := range s.all() {
			s.apply(r, p)
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
