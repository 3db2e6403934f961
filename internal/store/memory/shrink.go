package memory

import (
	"slices"

	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/store/arena"
)

// shrink drops the newest samples of a store that no job has open until the rest fits a capacity,
// frees their memory, and returns how many bytes the rest takes.
//
// Memory is freed by segment. Samples that stay and lie in a segment with others that do not are
// copied elsewhere, one segment at a time.
func (s *classStore) shrink(capacity int64) (used int64) {
	held := s.Held()
	keep := make([]bool, len(s.where))
	sum := int64(0)
	left := 0
	for _, id := range held {
		if sum += s.takes(int(id)); sum > capacity {
			break
		}
		keep[id] = true
		left++
	}
	if _, used = s.Capacity(); used <= capacity {
		return used
	}
	for _, g := range s.segments.Load().list {
		if g != nil {
			s.sift(g, keep)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// Samples that were copied stay as old as they are.
	s.mu.order = arena.NewOrder(slices.DeleteFunc(held[:left], func(id int32) bool {
		return !s.holds(id)
	}))
	return s.mu.used
}

// sift frees a segment that holds samples which are not kept. One to which samples are being added,
// by a read that hangs, remains.
func (s *classStore) sift(g *segment, keep []bool) {
	type kept struct {
		id     int
		data   []byte
		origin store.Origin
	}
	var all []kept
	s.mu.Lock()
	drops := g.dead > 0
	for _, id := range g.samples {
		if !g.holds(id) {
			continue
		}
		if !keep[id] {
			drops = true
			continue
		}
		origin, _ := s.Origin(int(id))
		all = append(all, kept{int(id), nil, origin})
	}
	s.mu.Unlock()
	if !drops {
		return
	}
	for i := range all {
		all[i].data = make([]byte, s.dataset.Size(all[i].id))
		if s.Read(all[i].id, all[i].data) != nil {
			all[i].data = nil
		}
	}
	if !s.giveBack(g.number, uncounted) {
		return
	}
	for _, k := range all {
		if k.data != nil {
			_ = s.Put(k.id, k.data, k.origin) // ErrFull if memory is short: it is dropped as well
		}
	}
}
