package memory

import (
	"context"
	"slices"
	"time"

	"github.com/hdmlp/hdmlp/internal/store"
)

// # Room for other samples
//
// The bytes of a dropped sample cannot be reused, because processes may view them. They are dead
// until their segment goes: when its last sample was dropped, or when Compact has moved those that
// are left to other segments. A segment that goes is given back like one that memory is short of
// (giveback.go): what was located in it before stays readable, and what is located from now on is
// elsewhere.
//
// A moved sample is copied while it is still held where it was, and then its location is replaced,
// so it can be read at all times. Whatever changes the location meanwhile wins, and the copy is
// abandoned.
//
// What processes still map counts: samples and memory that is leaving together take at most the
// capacity and one segment more (room). So samples may be moved while the store is full, one
// segment at a time, and new samples wait until processes have let go of the memory that they
// replace.

// dropBatch is how many samples are dropped while the lock is held.
const dropBatch = 1024

// Drop implements store.Store.
func (s *classStore) Drop(ids ...int) {
	for part := range slices.Chunk(ids, dropBatch) {
		var empty []uint32
		s.mu.Lock()
		for _, id := range part {
			if uint(id) < uint(len(s.where)) {
				if g := s.drop(id, nil); g != nil && g.held == 0 && g.adding == 0 && !g.emptying {
					empty = append(empty, g.number)
				}
			}
		}
		s.mu.Unlock()
		for _, number := range empty {
			s.giveBack(number, release)
		}
	}
}

// drop drops a sample if it is held, and in segment only unless that is nil. It returns the
// sample's segment, nil if nothing was dropped. s.mu must be held.
func (s *classStore) drop(id int, only *segment) *segment {
	at := packed(s.where[id].Load())
	if at <= 0 {
		return nil
	}
	g := s.segments.Load().of(at.segment())
	if only != nil && g != only {
		return nil
	}
	s.where[id].Store(absent)
	s.mu.order.Gone(s.holds)
	g.held--
	g.dead += s.dataset.Size(id)
	return g
}

// release counts the memory of a segment whose samples were dropped or moved.
func release(r *store.Returned, bytes int64) { r.Released += bytes }

// room returns how many bytes can be added now: what samples leave of the capacity, if what is
// leaving does not take it. s.mu must be held.
func (s *classStore) room() int64 { return min(s.mu.capacity-s.mu.used, s.most()) }

// most returns how many bytes can be added, dead ones counted, while samples are moved. s.mu must
// be held.
func (s *classStore) most() int64 { return s.mu.capacity + s.mu.size - s.mu.used - s.mu.lent }

// Compact implements store.Compactor.
func (s *classStore) Compact(ctx context.Context, room int64) {
	w := waiting{s: s, left: min(2*s.class.Delay()+minCompactWait, maxCompactWait)}
	tried := map[*segment]bool{}
	for g := s.sparsest(room, tried); g != nil && ctx.Err() == nil; g = s.sparsest(room, tried) {
		tried[g] = true
		s.empty(ctx, g, &w)
	}
	w.until(ctx, func() bool { return s.mu.lent == 0 || s.room() >= room })
}

const (
	// Compact waits for processes to let go of memory, in total for twice as long as that is
	// expected to take and minCompactWait more, but no longer than maxCompactWait.
	minCompactWait, maxCompactWait = time.Second, 30 * time.Second
)

// waiting waits for memory that is leaving, and for samples that are being added.
type waiting struct {
	s    *classStore
	left time.Duration // for which it will still wait
}

// until waits until enough is true, and reports whether it is. It gives up when ctx is done or no
// time is left. enough is called with the store's lock.
func (w *waiting) until(ctx context.Context, enough func() bool) bool {
	begun := time.Now()
	timer := time.NewTimer(w.left)
	defer timer.Stop()
	defer func() { w.left = max(w.left-time.Since(begun), 0) }()
	for {
		w.s.mu.Lock()
		done, changed := enough(), w.s.mu.changed
		w.s.mu.Unlock()
		if done {
			return true
		}
		select {
		case <-changed:
		case <-timer.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// sparsest returns the segment whose dead bytes cost least to free: those with the fewest bytes to
// move for each; none that was tried. nil: there is room for so many bytes once what is leaving is
// free, or there are no dead bytes.
func (s *classStore) sparsest(room int64, tried map[*segment]bool) *segment {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.capacity-s.mu.used >= room {
		return nil
	}
	var best *segment
	var least float64
	for _, g := range s.segments.Load().list {
		if g == nil || g.state != live || g.emptying || g.dead == 0 || tried[g] {
			continue
		}
		_, used := g.space.Capacity()
		if cost := float64(used) / float64(g.dead); best == nil || cost < least {
			best, least = g, cost
		}
	}
	return best
}

// empty moves the samples of a segment to others, and gives it back. Samples for which there is no
// room, though it has waited for some, are dropped. If ctx is done it leaves the rest as it is.
func (s *classStore) empty(ctx context.Context, g *segment, w *waiting) {
	s.mu.Lock()
	g.emptying = true
	if s.mu.current == g {
		s.mu.current = nil
	}
	s.mu.Unlock()
	w.until(ctx, func() bool { return g.adding == 0 })
	s.mu.Lock()
	samples := slices.Clone(g.samples)
	s.mu.Unlock()
	for i := 0; i < len(samples) && ctx.Err() == nil; {
		id := int(samples[i])
		moved, full := s.move(g, id)
		switch {
		case moved:
			i++
		case full && w.until(ctx, func() bool { return s.most() >= s.dataset.Size(id) }):
		case ctx.Err() == nil:
			s.mu.Lock()
			for _, id := range samples[i:] {
				s.drop(int(id), g)
			}
			s.mu.Unlock()
			i = len(samples)
		}
	}
	s.mu.Lock()
	empty := g.held == 0 && g.adding == 0
	g.emptying = empty
	s.mu.Unlock()
	if empty {
		s.giveBack(g.number, release)
	}
}

// move moves a sample to another segment, if it is still in this one. moved is false if there is no
// room: full reports whether that is because of memory that is leaving, or else the memory of
// samples may not grow.
func (s *classStore) move(from *segment, id int) (moved, full bool) {
	n := s.dataset.Size(id)
	s.mu.Lock()
	at := packed(s.where[id].Load())
	if at <= 0 || at.segment() != from.number || from.state != live {
		s.mu.Unlock()
		return true, false
	}
	to, offset, ok := s.allocate(n, s.most())
	if !ok {
		full = n > s.most()
		s.mu.Unlock()
		return false, full
	}
	from.use() // succeeds: it is live
	s.mu.Unlock()
	copy(to.mapped[offset:offset+n], from.mapped[at.offset():])
	s.mu.Lock()
	if packed(s.where[id].Load()) == at {
		from.held--
		from.dead += n
		to.add(id, offset)
	} else { // it was dropped, or its segment was given back
		s.abandon(to, offset, n)
	}
	s.mu.Unlock()
	from.Release()
	return true, false
}
