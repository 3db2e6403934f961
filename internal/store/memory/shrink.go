package memory

import (
	"bytes"
	"slices"

	"github.com/hdmlp/hdmlp/internal/lib/digest"
	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/store/arena"
)

// shrink drops the newest samples of a store that no job has open until the rest fits a capacity,
// frees their memory, and returns how many bytes the rest takes. Forms count as their samples,
// which they can become again: so the rest may take more than the capacity.
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
	if _, used = s.Capacity(); used <= capacity || left == len(held) && s.Formed().Samples > 0 {
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
		kind   uint8
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
		all = append(all, kept{id: int(id), origin: origin})
	}
	s.mu.Unlock()
	if !drops {
		return
	}
	for i := range all {
		k := &all[i]
		if form, err := s.Form(k.id); err == nil {
			k.data, k.kind = bytes.Clone(form.Data), form.Kind
			form.Release()
			continue
		}
		k.data = make([]byte, s.dataset.Size(k.id))
		if s.Read(k.id, k.data) != nil {
			k.data = nil
		}
	}
	if !s.giveBack(g.number, uncounted) {
		return
	}
	for _, k := range all {
		if k.data != nil {
			s.putBack(k.id, k.kind, k.data, k.origin)
		}
	}
}

// putBack puts a copy of a sample that was dropped. If memory is short, the sample is not held.
func (s *classStore) putBack(id int, kind uint8, data []byte, origin store.Origin) {
	if kind == 0 {
		_ = s.Put(id, data, origin)
		return
	}
	if !s.where[id].CompareAndSwap(absent, coming) {
		return
	}
	s.mu.Lock()
	g, offset, ok := s.allocate(s.aligned(headSize+int64(len(data))), s.room(),
		place{form: true})
	s.mu.Unlock()
	if !ok {
		s.where[id].Store(absent)
		return
	}
	h := head{kind, digest.Of(data), int64(len(data))}
	g.write(offset, h, data)
	s.publish(id, g, offset, true, origin)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count(id, h)
}
