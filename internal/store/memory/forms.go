package memory

import (
	"encoding/binary"
	"fmt"

	"github.com/hdmlp/hdmlp/internal/lib/digest"
	"github.com/hdmlp/hdmlp/internal/store"
)

// # Samples in other forms
//
// A form lies in a segment as samples do, after a head that has its kind, size and digest, so that
// they change together with the location. The location says that there is a head (packed.form).
//
// A form replaces the copy that was there by one store of the location: readers find the old copy
// or the new one. The old bytes are dead until their segment is empty, as those of dropped samples
// are (drop.go). So what replaces many should do so segment by segment. Forms have segments of
// their own, in which no samples as read are between them that would leave holes when they are
// replaced.

// headSize is the size of a head in bytes:
//
//	0  1 byte   kind
//	1  3 bytes  0
//	4  4 bytes  digest
//	8  8 bytes  size of what follows
const headSize = 16

// head describes a form.
type head struct {
	kind   uint8
	digest uint32
	size   int64
}

// head returns the head of the copy at a location in the segment, which must be mapped.
func (g *segment) head(at packed) head {
	b := g.mapped[at.offset():][:headSize]
	le := binary.LittleEndian
	return head{kind: b[0], digest: le.Uint32(b[4:]), size: int64(le.Uint64(b[8:]))}
}

// write writes a head, and the form that it describes, to the segment.
func (g *segment) write(offset int64, h head, form []byte) {
	b := g.mapped[offset:]
	le := binary.LittleEndian
	le.PutUint32(b, uint32(h.kind))
	le.PutUint32(b[4:], h.digest)
	le.PutUint64(b[8:], uint64(h.size))
	copy(b[headSize:], form)
}

// Form implements store.Forms.
func (s *classStore) Form(id int) (store.Form, error) {
	g, at, ok := s.find(id)
	switch {
	case !ok:
		return store.Form{}, store.ErrNotHeld
	case !at.form():
		g.Release()
		return store.Form{}, store.ErrNotHeld
	}
	h := g.head(at)
	begin := at.offset() + headSize
	data := g.mapped[begin : begin+h.size : begin+h.size]
	if digest.Of(data) != h.digest {
		s.discard(id, at)
		g.Release()
		return store.Form{}, store.ErrCorrupt
	}
	return store.Form{Hold: g, Data: data, Kind: h.kind, Digest: h.digest}, nil
}

// Discard implements store.Forms.
func (s *classStore) Discard(id int, form store.Form) bool {
	g, at, ok := s.find(id)
	if !ok {
		return false
	}
	defer g.Release()
	begin := at.offset() + headSize
	// A form is not empty. While it is held, its memory has no other copy.
	if !at.form() || len(form.Data) == 0 || &g.mapped[begin] != &form.Data[0] {
		return false
	}
	return s.discard(id, at)
}

// discard drops a sample if its copy at a location is still the one that is held, and reports
// whether it is.
func (s *classStore) discard(id int, at packed) bool {
	s.mu.Lock()
	if packed(s.where[id].Load()) != at {
		s.mu.Unlock()
		return false
	}
	g := s.drop(id)
	empty := g.held == 0 && g.adding == 0
	s.mu.Unlock()
	if empty {
		s.giveBack(g.number, uncounted)
	}
	return true
}

// Formed implements store.Forms.
func (s *classStore) Formed() store.Formed {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.formed
}

// Replace implements store.Forms.
func (s *classStore) Replace(id int, kind uint8, data []byte) error {
	length := -1
	if kind == 0 {
		length = len(data)
	}
	if err := s.check(id, length); err != nil {
		return fmt.Errorf("memory class: replace: %w", err)
	}
	s.mu.Lock()
	old := packed(s.where[id].Load())
	if old <= 0 {
		s.mu.Unlock()
		return store.ErrNotHeld
	}
	n := s.aligned(int64(len(data)))
	if kind != 0 {
		n = s.aligned(headSize + int64(len(data)))
	}
	p := place{form: kind != 0, not: s.segments.Load().of(old.segment())}
	room := s.room()
	if p.beyond = kind == 0 || old.form(); p.beyond {
		// A segment's samples may take as much besides as it has, though new ones may be smaller.
		room = s.most() + max(p.not.backed-s.mu.size, 0)
	}
	g, offset, ok := s.allocate(n, room, p)
	s.mu.Unlock()
	if !ok {
		return store.ErrFull
	}
	if kind == 0 {
		copy(g.mapped[offset:], data)
	} else {
		g.write(offset, head{kind, digest.Of(data), int64(len(data))}, data)
	}
	return s.swap(id, old, g, offset, n, kind != 0)
}

// swap makes a copy, whose n bytes are complete, the one that is held instead of the one at old.
func (s *classStore) swap(id int, old packed, g *segment, offset, n int64, form bool) error {
	s.mu.Lock()
	if packed(s.where[id].Load()) != old {
		s.abandon(g, offset, n)
		s.mu.Unlock()
		return store.ErrNotHeld
	}
	g.add(id, offset, form)
	if form {
		s.count(id, g.head(pack(g.number, offset, true)))
	}
	was := s.leave(id, old)
	empty := was.held == 0 && was.adding == 0
	s.mu.Unlock()
	if empty {
		s.giveBack(was.number, uncounted)
	}
	return nil
}

// leave notes that a sample's copy at a location is not the one that is held any more, and returns
// its segment. s.mu must be held.
func (s *classStore) leave(id int, at packed) *segment {
	g := s.segments.Load().of(at.segment())
	n := s.takes(id)
	if at.form() {
		h := g.head(at)
		s.uncount(id, h)
		n = s.aligned(headSize + h.size)
	}
	g.held--
	g.dead += n
	return g
}

// count counts a form. s.mu must be held.
func (s *classStore) count(id int, h head) {
	s.mu.formed.Samples++
	s.mu.formed.Bytes += h.size
	s.mu.formed.AsRead += s.dataset.Size(id)
}

// uncount undoes count. s.mu must be held.
func (s *classStore) uncount(id int, h head) {
	s.mu.formed.Samples--
	s.mu.formed.Bytes -= h.size
	s.mu.formed.AsRead -= s.dataset.Size(id)
}
