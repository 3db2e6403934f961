package memory

import (
	"slices"

	"github.com/hdmlp/hdmlp/internal/store"
)

// The bytes of a dropped sample cannot be reused, because processes may view them. They are dead
// until their segment goes, when its last sample was dropped. It is given back then like one that
// memory is short of (giveback.go).

// dropBatch is how many samples are dropped while the lock is held.
const dropBatch = 1024

// Drop implements store.Store.
func (s *classStore) Drop(ids ...int) {
	for part := range slices.Chunk(ids, dropBatch) {
		var empty []uint32
		s.mu.Lock()
		for _, id := range part {
			if uint(id) < uint(len(s.where)) {
				if g := s.drop(id); g != nil && g.held == 0 && g.adding == 0 {
					empty = append(empty, g.number)
				}
			}
		}
		s.mu.Unlock()
		for _, number := range empty {
			s.giveBack(number, uncounted)
		}
	}
}

// drop drops a sample if it is held, and returns its segment, or else nil. s.mu must be held.
func (s *classStore) drop(id int) *segment {
	at := packed(s.where[id].Load())
	if at <= 0 {
		return nil
	}
	s.where[id].Store(absent)
	s.mu.order.Gone(s.holds)
	return s.leave(id, at)
}

// uncounted does not count memory as given back, which is for want of memory.
func uncounted(*store.Returned, int64) {}

// room returns how many bytes can be added now: what samples leave of the capacity, if what is
// leaving does not take it. s.mu must be held.
func (s *classStore) room() int64 { return min(s.mu.capacity-s.mu.used, s.most()) }

// most returns how many bytes can be added if samples and what is leaving together may take the
// capacity and one segment more. s.mu must be held.
func (s *classStore) most() int64 { return s.mu.capacity + s.mu.size - s.mu.used - s.mu.lent }
