package stage

import (
	"context"

	"github.com/hdmlp/hdmlp/internal/engine/cache"
)

// submit starts to bring the samples of a batch: at once, as torch's workers would
// (Options.Workers), or, those that are read on demand, once the process asks for the batch
// (bringLater).
func (s *Stager) submit(b *batch, tasks []cache.Task) {
	if s.o.Demand != nil {
		now := tasks[:0]
		for _, t := range tasks {
			if s.o.Demand(int(b.IDs[t.Index])) {
				b.later = append(b.later, t)
			} else {
				now = append(now, t)
			}
		}
		tasks = now
	}
	switch {
	case len(tasks) == 0:
	case s.o.Workers == 0:
		s.o.Cache.Submit(tasks)
	default:
		s.line(b, tasks)
	}
}

// line has the batch brought by the next worker in turn, after that worker's last batch.
func (s *Stager) line(b *batch, tasks []cache.Task) {
	b.mu.Lock()
	b.chain = tasks
	b.mu.Unlock()
	s.mu.Lock()
	if s.last == nil {
		s.last = make([]*batch, s.o.Workers)
	}
	before := s.last[s.turn]
	s.last[s.turn] = b
	s.turn = (s.turn + 1) % s.o.Workers
	waits := before != nil && !before.over
	if waits {
		before.follows = b
	}
	s.mu.Unlock()
	if !waits {
		b.next()
	}
}

// next has the next sample of a worker's batch brought, if there is one.
func (b *batch) next() {
	if b.stager.o.Workers == 0 {
		return
	}
	b.mu.Lock()
	var task []cache.Task
	if len(b.chain) > 0 {
		task, b.chain = b.chain[:1:1], b.chain[1:]
	}
	b.mu.Unlock()
	if task != nil {
		b.stager.o.Cache.Submit(task)
	}
}

// ended has the worker of a batch, all of whose samples have arrived, bring its next one.
func (s *Stager) ended(b *batch) {
	if s.o.Workers == 0 {
		return
	}
	s.mu.Lock()
	b.over = true
	next := b.follows
	b.follows = nil
	s.mu.Unlock()
	if next != nil {
		next.next()
	}
}

// bringLater starts to bring the samples of the next batch that are read on demand, once the
// process is blocked for it.
func (s *Stager) bringLater(ctx context.Context, b *batch) error {
	for len(b.later) > 0 {
		s.mu.Lock()
		asked := s.waiting && s.taken >= s.emitted
		s.mu.Unlock()
		if asked {
			b.submitLater()
			return nil
		}
		select {
		case <-s.asked:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// submitLater starts to bring what was left for later.
func (b *batch) submitLater() {
	tasks := b.later
	if b.later = nil; len(tasks) > 0 {
		b.stager.o.Cache.Submit(tasks)
	}
}
