package stage

import (
	"context"
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/engine/cache"
	"github.com/hdmlp/hdmlp/internal/model/meter"
)

// Run stages the batches from (epoch, step) on, and calls emit with each, in order. It returns nil
// after the last batch of the stream, or of the last epoch that is given, or the first error: of
// emit, of ctx, or of a sample if the job's policy does not forgive it. Run may be called again
// once it has returned. A batch belongs to emit; batches that were staged and not emitted are
// discarded.
func (s *Stager) Run(ctx context.Context, epoch, step int, emit func(*Batch) error) error {
	s.o.Ledger.Restart(epoch)
	return s.Continue(ctx, epoch, step, emit)
}

// Continue is Run for a process whose batches before the first one did not all come from here, but
// belong to the same pass: the ledger still expects them to be yielded.
func (s *Stager) Continue(ctx context.Context, epoch, step int, emit func(*Batch) error) error {
	ctx, cancel := context.WithCancel(ctx)
	queue := make(chan *batch, max(s.o.Ahead, s.o.MostAhead))
	s.mu.Lock()
	s.begin = epoch*s.o.Stream.Steps() + step
	s.laidOut = 0
	s.emitted = 0
	s.taken = 0
	s.growth.restart()
	s.last, s.turn = nil, 0
	s.pace, s.holding = meter.Pace{Ranks: s.o.Stream.Spec().WorldSize}, false
	s.mu.Unlock()

	var walker sync.WaitGroup
	var walkErr error
	walker.Go(func() {
		defer close(queue)
		walkErr = s.walk(ctx, epoch, step, queue)
		s.mu.Lock()
		s.holding = true
		s.mu.Unlock()
	})
	err := s.publish(ctx, queue, emit)
	cancel()
	for b := range queue {
		s.discard(b)
	}
	walker.Wait()
	// Reset at the end, because the process may wait before the next Run has begun.
	s.settle(-1)
	s.barriers.endAll()
	select {
	case <-s.demand:
	default:
	}
	if err == nil {
		err = walkErr
	}
	return err
}

// publish emits batches, in order:
//
//  1. wait until all samples of the batch have arrived (complete);
//  2. mark its slots as sent to the process, and enter the batch in the ledger;
//  3. subtract it from the batches in progress, and clear the process's wait for it (settle);
//  4. emit it, and then what waits for that (Barrier).
func (s *Stager) publish(ctx context.Context, queue <-chan *batch, emit func(*Batch) error) error {
	for b := range queue {
		err := s.bringLater(ctx, b)
		if err == nil {
			err = s.complete(ctx, b)
		}
		if err != nil {
			s.discard(b)
			return err
		}
		b.compact()
		b.listLeft()
		b.unpack()
		b.Slots, b.extraID = append(b.Slots, b.extraID...), nil
		s.o.Buffer.MarkSent(b.Slots)
		b.made = b.delivery()
		s.o.Ledger.emitted(b.made)
		// Before emit: once the process has the batch it may wait for the next one, and settle must
		// not clear that.
		s.settle(1)
		if err := emit(&b.Batch); err != nil {
			s.discard(b)
			return err
		}
		b.to(sent)
		s.barriers.end()
	}
	return nil
}

// complete waits until all samples of the next batch are there. It reserves memory for those that
// are parked.
func (s *Stager) complete(ctx context.Context, b *batch) error {
	for {
		select {
		case <-b.done:
		case <-ctx.Done():
			return ctx.Err()
		}
		if b.err != nil || len(b.parked) == 0 {
			return b.err
		}
		if err := s.unpark(ctx, b); err != nil {
			return err
		}
	}
}

// unpark brings the parked samples of a batch whose other samples have arrived.
func (s *Stager) unpark(ctx context.Context, b *batch) error {
	var need int64
	tasks := make([]cache.Task, len(b.parked))
	for n, i := range b.parked {
		need += b.wants[i]
		tasks[n] = b.task(i)
	}
	s.lack(true)
	defer s.lack(false)
	start := time.Now()
	slot, extra, err := s.o.Buffer.AllocFirst(ctx, need)
	if err != nil {
		return err
	}
	waited := time.Since(start)
	b.allocWait += waited
	b.planned = b.planned.Add(waited) // the wait for memory does not count as fetching
	b.addSlot(slot, extra)
	b.slab, b.parked = slab{slot: slot, align: b.o.align()}, nil
	b.begin(len(tasks))
	s.o.Cache.Submit(tasks)
	return nil
}
