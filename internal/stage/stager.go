package stage

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// Stager stages one rank's batches.
type Stager struct {
	o      Options
	demand chan struct{} // Lazy: one token per batch asked for
	reap   sync.WaitGroup

	mu          sync.Mutex
	outstanding int // batches planned and not yet sent
	// Of the Run: the step that it began with, counted through all epochs, and how many batches
	// were laid out, emitted, and taken by the process.
	begin, laidOut, emitted, taken int
	waiting                        bool // the process is blocked, and has got nothing since
	lacking                        bool // the next batch waits for room

	sizes sizes // of results, where they differ

	moved  chan struct{} // has a token after taken has changed
	staged atomic.Int64
}

// New returns a stager; it owns the buffer from now on.
func New(o Options) *Stager {
	if o.First == 0 {
		o.First = o.Ahead
	}
	return &Stager{o: o, demand: make(chan struct{}, 1), moved: make(chan struct{}, 1)}
}

// settle takes n batches, or all if n is negative and the process gets no more, off the count of
// those on their way, and with them whatever the process has waited for so far.
func (s *Stager) settle(n int) {
	s.mu.Lock()
	if n < 0 {
		n = s.outstanding
		s.taken = s.emitted + n
	}
	s.outstanding -= n
	s.emitted += n
	s.waiting = false
	s.o.Buffer.Urge(false)
	s.mu.Unlock()
}

// discard gives a batch's room back, once no read writes to it any more.
func (s *Stager) discard(b *batch) {
	s.reap.Go(func() {
		<-b.done
		b.hung.Wait()
		b.to(discarded)
		for _, id := range slices.Concat(b.Slots, b.extraID) {
			_, _ = s.o.Buffer.Free(id)
		}
	})
}

// Wait says that the process is blocked in next(); Taken was called for all that it has taken.
func (s *Stager) Wait() {
	if s.o.Lazy {
		select {
		case s.demand <- struct{}{}:
		default:
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = true
	s.urge()
}

// urge has the buffer make room where the process waits for it: no batch is on its way, or the next
// one lacks room. s.mu is held.
func (s *Stager) urge() {
	switch starved := s.waiting && s.taken == s.emitted; {
	case starved && s.lacking:
		s.o.Buffer.UrgeFirst()
	case starved && s.outstanding == 0:
		s.o.Buffer.Urge(true)
	case s.waiting:
		s.o.Buffer.Look() // a batch is on its way to the process
	}
}

// lack says whether the next batch waits for room, so that nothing comes to the process unless it
// gets some.
func (s *Stager) lack(yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lacking = yes
	s.urge()
}

// Taken says that the process has taken the batches up to this one.
func (s *Stager) Taken(epoch, step int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.take(min(epoch*s.o.Stream.Steps()+step+1-s.begin, s.emitted))
}

// take notes that the process has taken n batches of the Run. s.mu is held.
func (s *Stager) take(n int) {
	if n <= s.taken {
		return
	}
	s.taken = n
	select {
	case s.moved <- struct{}{}:
	default:
	}
}

// hold waits until the process has taken enough batches for another one, and counts that as laid
// out.
func (s *Stager) hold(ctx context.Context) error {
	for {
		s.mu.Lock()
		full := s.laidOut-s.taken >= min(s.o.First+2*s.taken, s.o.Ahead)
		if !full {
			s.laidOut++
		}
		s.mu.Unlock()
		if !full {
			return nil
		}
		select {
		case <-s.moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Close gives the staging buffer back once the last read into it has ended. Run
// must have returned.
func (s *Stager) Close() {
	// A read that hangs in the kernel may still write to the buffer: then it is
	// never unmapped, rather than something else being overwritten.
	go func() {
		s.reap.Wait()
		s.o.Buffer.Close()
	}()
}

// Staged is how many batches have been read so far.
func (s *Stager) Staged() int { return int(s.staged.Load()) }
