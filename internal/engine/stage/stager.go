package stage

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hdmlp/hdmlp/internal/model/meter"
)

// Stager stages one rank's batches.
type Stager struct {
	o      Options
	demand chan struct{} // Lazy: a token for each batch asked for
	asked  chan struct{} // Demand: a token when the process is blocked
	reap   sync.WaitGroup
	// of the outputs; nil: there is none
	preprocessor Preprocessor
	steps        int  // of all outputs
	takesForms   bool // samples may come in another form than as read

	mu          sync.Mutex // guards the following, but for barriers, sizes, moved, staged, left
	outstanding int        // batches planned and not yet sent
	// Of the current Run: the step that it began with, counted over all epochs, and how many
	// batches were laid out, emitted, and taken by the process.
	begin, laidOut, emitted, taken int
	waiting                        bool      // the process is blocked, with nothing sent since
	urgent                         bool      // if waiting: nothing frees memory that it lacks
	since                          time.Time // when it was blocked, if waiting
	lacking                        bool      // the next batch waits for memory
	reserving                      bool      // the walker waits for memory
	holding                        bool      // the walker waits for the process, or has ended
	ahead                          int       // most batches staged and not yet taken
	pace                           meter.Pace
	growth                         growth
	last                           []*batch // of each worker (line)
	turn                           int      // the worker that brings the next batch

	barriers barriers
	sizes    sizes // of results, if they vary

	moved  chan struct{} // receives a token when taken has changed
	staged atomic.Int64
	left   atomic.Int64 // samples of all batches that have not arrived
}

// New returns a stager, which owns the buffer from now on.
func New(o Options) *Stager {
	if o.First == 0 {
		o.First = o.Ahead
	}
	return &Stager{
		o: o, ahead: o.Ahead,
		preprocessor: Preprocesses(o.Outputs), steps: len(Steps(o.Outputs)),
		takesForms: o.TakesForms && !o.Verify,
		demand:     make(chan struct{}, 1),
		asked:      make(chan struct{}, 1),
		moved:      make(chan struct{}, 1),
	}
}

// settle subtracts n batches from those in progress, and clears the process's wait for them. If n
// is negative, it does so for all batches: the process gets no more of them.
func (s *Stager) settle(n int) {
	s.mu.Lock()
	if n < 0 {
		n = s.outstanding
		s.taken = s.emitted + n
		s.laidOut = s.taken
	}
	s.outstanding -= n
	s.emitted += n
	if s.waiting {
		s.pace.Resume(time.Now())
	}
	s.waiting = false
	s.o.Buffer.Urge(false)
	s.mu.Unlock()
}

// discard frees a batch's memory once no read writes to it any more.
func (s *Stager) discard(b *batch) {
	b.submitLater() // they end at once, as the Run does
	s.reap.Go(func() {
		<-b.done
		b.hung.Wait()
		b.to(discarded)
		for _, id := range slices.Concat(b.Slots, b.extraID) {
			_, _ = s.o.Buffer.Free(id)
		}
	})
}

// Wait records that the process is blocked in next(). Taken must have been called for all batches
// that it has taken.
func (s *Stager) Wait() { s.wait(true) }

// WaitForSlots is Wait while slots are about to be freed: the buffer does not allocate beyond the
// ring.
func (s *Stager) WaitForSlots() { s.wait(false) }

func (s *Stager) wait(urgent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// A process that has waited for another rank's error may have left a token: the batch that it
	// waits for now is then on its way.
	if s.o.Lazy && s.laidOut <= s.taken {
		select {
		case s.demand <- struct{}{}:
		default:
		}
	}
	if !s.waiting {
		s.since = time.Now()
		s.pace.Block(s.since)
	}
	s.waiting, s.urgent = true, urgent
	select {
	case s.asked <- struct{}{}:
	default:
	}
	s.urge()
	s.widen()
	select { // hold looks whether there may be more batches
	case s.moved <- struct{}{}:
	default:
	}
}

// urge makes the buffer allocate beyond the ring if the process is blocked for lack of memory: no
// batch is in progress, or the next one lacks memory. s.mu must be held.
func (s *Stager) urge() {
	switch starved := s.waiting && s.urgent && s.taken == s.emitted; {
	case starved && s.lacking:
		s.o.Buffer.UrgeFirst()
	case starved && s.outstanding == 0:
		s.o.Buffer.Urge(true)
	case s.waiting: // a batch is on its way to the process
		s.o.Buffer.Urge(false)
		s.o.Buffer.Poll()
	}
}

// lack records whether the next batch waits for memory, so that the process receives nothing until
// it gets some.
func (s *Stager) lack(yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lacking = yes
	s.urge()
}

// Taken records that the process has taken all batches up to this one, for which it was blocked for
// stall.
func (s *Stager) Taken(epoch, step int, stall Stall) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(epoch*s.o.Stream.Steps()+step+1-s.begin, s.emitted) // of the Run
	if n <= s.taken {
		return
	}
	s.pace.Took(time.Now(), n-s.taken, stall.All-stall.Python)
	s.growth.took(n)
	s.taken = n
	select {
	case s.moved <- struct{}{}:
	default:
	}
}

// reserve records whether the walker waits for memory for a batch.
func (s *Stager) reserve(begins bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reserving = begins; begins {
		s.growth.full(s.taken, s.laidOut-1)
		s.widen()
	}
}

// starved reports whether the process waits although more samples could be read, and transformed,
// at the same time: then it waits because no more batches are in progress. A wait for the first
// batch is no evidence of that. s.mu must be held.
func (s *Stager) starved() bool {
	return s.waiting && s.taken > 0 && s.o.Cache.Unused() &&
		(s.preprocessor == nil || s.preprocessor.Takes(int(s.left.Load())+1) == 0)
}

// widen lets the staging buffer grow if there may be no more batches in progress for lack of
// memory. s.mu must be held.
func (s *Stager) widen() {
	if s.o.Grow == nil || !s.reserving || !s.growth.due || !s.starved() {
		return
	}
	if more := s.o.Buffer.Growth(); more > 0 && s.o.Grow(more) {
		s.o.Buffer.Grow(more)
		s.growth.grew()
	}
}

// Stuck reports whether no more batches are sent until the process takes some, or returns their
// memory: all that were staged are sent, or the next one lacks memory.
func (s *Stager) Stuck() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lacking || (s.reserving || s.holding) && s.outstanding == 0
}

// due returns when the process needs a batch, given by its step over all epochs: in seconds from
// now; 0 if it waits for it.
func (s *Stager) due(now time.Time, step int) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pace.Due(now, step-s.begin-s.taken)
}

// Work returns how long the process works on a batch, without what it waits for batches and for
// other ranks, in seconds (meter.Pace.Work). ok is false if nothing is known yet.
func (s *Stager) Work() (seconds float64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pace.Work()
}

// Ahead returns how many batches may be staged and not yet taken.
func (s *Stager) Ahead() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ahead
}

// Pace returns how long the process works on a batch, without what it waits for batches, in
// seconds: the mean of this share of the last batches, those with the least (meter.Pace.Least). ok
// is false if that is not known yet.
func (s *Stager) Pace(share float64) (seconds float64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pace.Least(share)
}

// hold waits until another batch may be staged, or, if Lazy is set, is asked for, and counts it as
// laid out.
func (s *Stager) hold(ctx context.Context) error {
	moved := s.moved
	if s.o.Lazy {
		moved = s.demand
	}
	for waits := s.o.Lazy; ; waits = true {
		if waits {
			select {
			case <-moved:
			case <-ctx.Done():
			}
		}
		s.mu.Lock()
		staged := s.laidOut - s.taken
		if staged >= s.ahead && s.ahead < s.o.MostAhead && s.starved() {
			s.ahead = min(s.ahead+s.ahead/2+1, s.o.MostAhead)
		}
		full := !s.o.Lazy && staged >= min(s.o.First+2*s.taken, s.ahead, s.reach())
		if s.holding = full; !full {
			s.laidOut++
		}
		s.mu.Unlock()
		if err := ctx.Err(); !full || err != nil {
			return err
		}
	}
}

// Close unmaps the staging buffer once the last read into it has ended. Run must have returned.
func (s *Stager) Close() {
	// A read that hangs in the kernel may still write to the buffer. Then the buffer is never
	// unmapped, so that nothing else is overwritten.
	go func() {
		s.reap.Wait()
		s.o.Buffer.Close()
	}()
}

// Staged returns how many batches have been staged so far.
func (s *Stager) Staged() int { return int(s.staged.Load()) }
