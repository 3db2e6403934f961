package lockstep

import (
	"context"
	"errors"

	"github.com/hdmlp/hdmlp/internal/lib/invariants"
	"github.com/hdmlp/hdmlp/internal/node/failure"
)

// Run is one pass of a rank through the stream, from Begin to End. Its states:
//
//   - running: batches are delivered; stop, if set, lies ahead.
//   - stopped: all batches before stop.At were delivered; Deliver refuses more, and the run is
//     cancelled.
//   - ended: after an End with an error that the process may not have had yet. stop may only still
//     change to an earlier one. An End without an error, or of a rank that goes on, forgets the
//     run, and so does Raised.
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

	past  *past // of the rank's process; nil: it has not had a run before
	round int
	// iteration is how often the loop has begun again in the round, elsewhere than it was.
	iteration int

	next  int   // the next batch
	taken int   // the first batch that the process has not taken, as far as is known
	stop  *Stop // the run ends before stop.At; nil: no rank has stopped
	lost  error // error of a batch that could not be sent, because the process is gone
	ended bool
}

// stretch is the batches of runs that follow on each other. Where ranks give orders, each epoch has
// a run of its own, but a rank that goes on with the next epoch has not begun again: it still gets
// a stop in the epoch that it has just come to the end of.
type stretch struct{ since, end int }

// errStopped ends a run's staging; its process gets the error of the stop instead.
var errStopped = errors.New("another rank has stopped")

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
		if delete(s.runs, r.rank); !interrupted {
			r.taken = r.next // they will be, unless the loop breaks off
		}
		s.past(r)
		if err == nil && !interrupted && r.lost == nil {
			s.ends[r.rank] = stretch{r.since, r.next}
		}
		return err
	}
	r.ended = true
	if err != nil && !canceled {
		p := Stop{
			Rank:      r.rank,
			Node:      s.node,
			Host:      s.host,
			Round:     r.round,
			Iteration: r.iteration,
			At:        r.next,
			Error:     *failure.Of(err),
		}
		s.learn(p)
		s.signal()
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
