package stage

import (
	"context"
	"math"
	"time"

	"github.com/hdmlp/hdmlp/internal/engine/cache"
	"github.com/hdmlp/hdmlp/internal/plan/access"
)

// walk schedules the stream's batches, and queues them in order.
func (s *Stager) walk(ctx context.Context, epoch, step int, queue chan<- *batch) error {
	spec := s.o.Stream.Spec()
	steps := s.o.Stream.Steps()
	last := spec.Epochs
	if epoch >= last { // the process goes on past the planned epochs, or the stream has no end
		last = math.MaxInt
	}
	for e := epoch; e < last; e++ {
		if s.o.Await != nil {
			if err := s.o.Await(ctx, e); err != nil {
				return err
			}
		}
		view := s.o.Epoch(e)
		if view == nil {
			return nil
		}
		for t := step; t < steps; t++ {
			if err := s.hold(ctx); err != nil {
				return err
			}
			if s.o.Gate != nil {
				if err := s.o.Gate(ctx, e, t); err != nil {
					return err
				}
			}
			s.barriers.begin()
			b, tasks, err := s.prepare(ctx, view, t)
			if err != nil {
				return err
			}
			s.mu.Lock()
			s.outstanding++
			s.urge() // no longer for the batches after it
			s.mu.Unlock()
			// Submit first: a full queue must not keep the tasks from starting.
			s.submit(b, tasks)
			select {
			case queue <- b:
			case <-ctx.Done():
				s.discard(b)
				return ctx.Err()
			}
		}
		step = 0
	}
	return nil
}

// prepare lays out a batch, and returns the tasks that bring its samples.
func (s *Stager) prepare(ctx context.Context, view *access.Epoch,
	step int,
) (*batch, []cache.Task, error) {
	ids := view.Batch(nil, s.o.Rank, step)
	n := len(ids)
	places := n * s.o.outputs()
	numbers := make([]uint64, 2*places)
	words := make([]uint32, 2*n+places)
	b := &batch{
		Batch: Batch{
			Epoch: view.Number(), Step: step,
			Labels:  make([]int64, n),
			Offsets: numbers[:places:places], Lengths: numbers[places:],
			IDs: words[:n:n], Occurrences: words[n : 2*n : 2*n], Segments: words[2*n:],
		},
		o:      &s.o,
		sizes:  &s.sizes,
		staged: &s.staged,
		view:   view,
		ctx:    ctx,
		order:  int64(view.Number())*int64(s.o.Stream.Steps()) + int64(step),
		stager: s,
		parts:  make([]part, n),
		dst:    make([][]byte, places),
	}
	b.request = cache.Request{
		Peers: s.o.Peers, Consumer: b, Due: b.due,
		CacheFirst: s.o.CacheFirst != nil && s.o.CacheFirst(),
		Forms:      s.takesForms,
	}
	if len(s.o.Outputs) > 0 {
		b.spent = make([]time.Duration, n*s.steps)
		b.lefts = make([]Left, places)
	}
	for i := range b.Occurrences {
		b.Occurrences[i] = uint32(s.o.Among)
	}
	for i, occurrence := range view.Occurrence(s.o.Rank, step) {
		b.Occurrences[i] += uint32(int(occurrence) * max(s.o.Ranks, 1))
	}
	for i, k := range ids {
		b.Audit += access.Mix(b.Epoch, int(k))
		b.IDs[i] = uint32(k)
	}
	tasks, err := b.layOut(ctx)
	if err != nil {
		return nil, nil, err
	}
	b.planned = time.Now()
	b.begin(len(tasks) + 1)
	b.arrived() // the layout itself, so that a batch without tasks is complete
	return b, tasks, nil
}
