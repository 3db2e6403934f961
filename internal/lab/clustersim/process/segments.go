package process

import (
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/engine/stage"
)

const (
	returns = 4096          // bytes of the page after the staging buffer
	entries = returns/8 - 2 // of the return ring in it, which has two other words
	extra   = 1 << 31       // in the number of a slot that lies in a segment of its own
	aligned = 64            // bytes, of which multiples are where arrays begin
)

// segment is a mapped segment.
type segment struct{ data []byte }

func mapFile(f *os.File, size int64, protection int) (segment, error) {
	if size == 0 {
		return segment{[]byte{}}, nil
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(size), protection, unix.MAP_SHARED)
	if err != nil {
		return segment{}, fmt.Errorf("map a segment of %d bytes: %w", size, err)
	}
	return segment{data}, nil
}

func (s segment) unmap() {
	if len(s.data) > 0 {
		_ = unix.Munmap(s.data)
	}
}

// receive copies a batch, and maps the segments that it is the first to name, as the daemon sends
// them.
func (p *Process) receive(b *stage.Batch) (*batch, error) {
	out := &batch{Batch: *b, at: make([]segment, len(b.IDs)), position: b.Epoch*p.steps + b.Step}
	out.IDs, out.Labels = slices.Clone(b.IDs), slices.Clone(b.Labels)
	out.Offsets, out.Lengths = slices.Clone(b.Offsets), slices.Clone(b.Lengths)
	out.Segments, out.Slots = slices.Clone(b.Segments), slices.Clone(b.Slots)
	out.Extras = nil
	others := map[uint32]segment{}
	for _, e := range b.Extras {
		s, err := mapFile(e.File, int64(e.Size), unix.PROT_READ)
		if err != nil {
			return nil, err
		}
		if stage.InWindow(e.Segment) {
			p.mu.Lock()
			p.mapped[e.Segment] = s
			p.mu.Unlock()
			continue
		}
		others[e.Segment], out.extras = s, append(out.extras, s)
	}
	for i, number := range b.Segments {
		if _, ok := stage.OfClass(number); ok {
			s, err := p.segment(number)
			if err != nil {
				return nil, err
			}
			out.at[i] = s
		} else if stage.InWindow(number) {
			p.mu.Lock()
			out.at[i] = p.mapped[number]
			p.mu.Unlock()
		} else if s, ok := others[number]; ok {
			out.at[i] = s
		} else if number == 0 {
			out.at[i] = segment{p.ring.data[:len(p.ring.data)-returns]}
		}
	}
	return out, nil
}

// note notes a slot in the return ring, where the daemon looks for it while it waits for memory. It
// reports whether there was room.
func (p *Process) note(slot uint32) bool {
	if slot&extra != 0 || !p.o.Notes || p.untaken() >= entries {
		return false
	}
	p.noted++
	atomic.StoreUint64(&p.words()[1+p.noted%entries], uint64(uint32(p.noted))<<32|uint64(slot))
	return true
}

// words returns the page with the return ring.
func (p *Process) words() []uint64 {
	page := &p.ring.data[len(p.ring.data)-returns]
	return unsafe.Slice((*uint64)(unsafe.Pointer(page)), returns/8)
}

// untaken returns how many notes the daemon has not taken.
func (p *Process) untaken() uint64 { return p.noted - atomic.LoadUint64(&p.words()[0]) }

// segment returns a segment of a storage class.
func (p *Process) segment(number uint32) (segment, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s, ok := p.mapped[number]; ok {
		return s, nil
	}
	s, ok := p.rank.Segment(number)
	if !ok {
		return segment{}, fmt.Errorf("%w: segment %#x does not exist", ErrWrong, number)
	}
	mapped, err := mapFile(s.File, s.Size, unix.PROT_READ)
	if err == nil {
		p.mapped[number] = mapped
	}
	return mapped, err
}

// retire drops a segment of a group's window, which later batches name by another number.
func (p *Process) retire(number uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mapped[number].unmap()
	delete(p.mapped, number)
}

// drop is called for a segment that no later batch names. It may be called from any goroutine.
func (p *Process) drop(number uint32, gone func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.mapped[number]; !ok || p.closed {
		gone()
		return
	}
	p.gone[number] = gone
	select {
	case p.news <- struct{}{}:
	default:
	}
}

// letGo drops the segments that are to be dropped and that no batch names; mu is held.
func (p *Process) letGo() {
	for number, gone := range p.gone {
		named := func(b *batch) bool { return slices.Contains(b.Segments, number) }
		if slices.ContainsFunc(p.held, named) || slices.ContainsFunc(p.queue, func(i item) bool {
			return i.batch != nil && named(i.batch)
		}) {
			continue
		}
		p.mapped[number].unmap()
		delete(p.mapped, number)
		delete(p.gone, number)
		gone()
	}
}
