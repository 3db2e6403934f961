// Package staging is the staging buffer, class 0 of the performance model: a
// ring in shared memory that the daemon fills with coming batches, and that one
// training process reads without copying.
//
// A Buffer hands out slots, contiguous parts of a memfd. A slot belongs to
// whoever fills it until it is described to the process, then to the process
// until it gives it back (when the last array or tensor on it is collected). Slots
// come back in any order, so the ring is kept as a list of free extents, used in
// the ring's order (next fit): a batch that the user keeps blocks its own bytes
// and nothing else.
//
// A process that keeps so many batches that none fits any more, and asks for the
// next one, gets it in an extra segment of its own, which is given back with its
// slot: a program that collects batches in a list uses more memory, and
// never hangs.
//
// A process gives slots back in one of two ways: it says so (Return), or it notes them in shared
// memory, behind the ring, where the buffer looks when it needs room (returns.go).
package staging

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/invariants"
)

// align is the alignment of slots: a cache line, enough for every tensor type.
const align = 64

// Slot is a part of the buffer.
type Slot struct {
	ID      uint32 // its top bit is set if the slot lies in an extra segment
	Segment uint32 // 0: the ring; above: an extra segment
	Offset  int64  // within the segment
	Data    []byte
}

// extraSlot is the bit of Slot.ID that says so: such a slot is given back by Return, because its
// segment ends with it.
const extraSlot = 1 << 31

// Extra is a segment made beside the ring for one slot.
type Extra struct {
	Segment uint32
	File    *os.File
	Size    int64
}

// Buffer is one rank's staging buffer. Its methods are safe for concurrent use.
type Buffer struct {
	ring memory // and the returns behind it
	size int64  // of the ring

	mu struct {
		sync.Mutex
		changed *sync.Cond

		// INVARIANT: free is sorted by offset, its extents are disjoint, not empty
		// and not adjacent; free and the ring's slots together are the ring.
		free   []extent
		poison invariants.Poison // of free
		next   int64             // where the last allocation ended: the ring goes on from there

		slots    map[uint32]held
		lastSlot uint32
		returns  returns
		confused error // what was wrong with something that the process noted there
		lastSeg  uint32
		extra    int64 // bytes in extra segments
		urgent   bool  // the process is blocked and nothing is on its way to it
		// urgentFirst is urgent where what is on its way to the process lacks room.
		urgentFirst bool
		closed      bool
	}
}

type held struct {
	segment uint32
	extent  extent
	extra   *memory // nil for the ring
	handed  bool    // it was described to the process
}

// New makes a buffer whose ring has size bytes, rounded up to whole pages.
// Pages take memory once they are used.
func New(size int64) (*Buffer, error) {
	page := int64(os.Getpagesize())
	size = max((size+page-1)/page*page, page)
	ring, err := newMemory("hdmlp-staging", size+returnsSize)
	if err != nil {
		return nil, err
	}
	b := &Buffer{ring: ring, size: size}
	b.mu.returns = newReturns(ring.data[size:])
	b.mu.changed = sync.NewCond(&b.mu)
	b.mu.free = []extent{{0, size}}
	b.mu.slots = make(map[uint32]held)
	return b, nil
}

// Ring returns the ring's memfd and its size in bytes. It is segment 0.
func (b *Buffer) Ring() (*os.File, int64) { return b.ring.file, b.size }

// Resident is how many bytes of the ring have taken memory.
func (b *Buffer) Resident() int64 {
	var st unix.Stat_t
	if unix.Fstat(int(b.ring.file.Fd()), &st) != nil {
		return 0
	}
	return st.Blocks * 512
}

// Notes tells whether the process may note in shared memory what it gives back: in the page behind
// the ring, in the ring's memfd.
func (b *Buffer) Notes() bool { return ordered }

// End notes in shared memory, behind the ring, that the stream ends before its nth batch, which may
// be on its way to the process already, and so overtakes it; negative: it does not.
func (b *Buffer) End(n int) { atomic.StoreUint64(b.mu.returns.end(), uint64(n+1)) }

// Data returns part of the ring, as the process sees it.
func (b *Buffer) Data(offset, length uint64) []byte {
	return b.ring.data[offset : offset+length : offset+length]
}

// Usage returns the bytes in use in the ring and in extra segments.
func (b *Buffer) Usage() (ring, extra int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.collect()
	used := b.size
	for _, e := range b.mu.free {
		used -= e.size
	}
	return used, b.mu.extra
}

// Alloc returns a slot of n bytes. It blocks until the ring has room, ctx is
// done, or the buffer is urged (see Urge): then the slot lies in an extra
// segment, which is returned beside it. So does one that is larger than the ring.
func (b *Buffer) Alloc(ctx context.Context, n int64) (Slot, *Extra, error) {
	return b.alloc(ctx, n, false)
}

// AllocFirst is Alloc for what the process gets next; UrgeFirst urges it, and not others.
func (b *Buffer) AllocFirst(ctx context.Context, n int64) (Slot, *Extra, error) {
	return b.alloc(ctx, n, true)
}

func (b *Buffer) alloc(ctx context.Context, n int64, first bool) (Slot, *Extra, error) {
	stop := context.AfterFunc(ctx, b.wake)
	defer stop()
	var look looking
	defer look.end()
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		if err := ctx.Err(); err != nil {
			return Slot{}, nil, err
		}
		if b.mu.closed {
			return Slot{}, nil, os.ErrClosed
		}
		b.collect()
		if b.mu.confused != nil {
			return Slot{}, nil, b.mu.confused
		}
		if s, ok := b.fit(n); ok {
			return s, nil, nil
		}
		if urgent := b.urgency(first); *urgent {
			*urgent = false
			return b.allocExtra(n)
		}
		look.again(b.wake)
		b.mu.changed.Wait()
	}
}

// TryAlloc returns a slot of n bytes in the ring, if it has room now.
func (b *Buffer) TryAlloc(n int64) (Slot, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.collect()
	if b.mu.closed || b.mu.confused != nil {
		return Slot{}, false
	}
	return b.fit(n)
}

// Trim gives back what lies behind the first n bytes of a slot, which was not described to the
// process yet. The segment of one that is not in the ring stays as large as it is.
func (b *Buffer) Trim(slot uint32, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h, ok := b.mu.slots[slot]
	if invariants.Enabled {
		invariants.Check(ok || b.mu.closed, "staging: trim of slot %d, which is not in use", slot)
	}
	if keep := aligned(n); ok && h.extra == nil && keep < h.extent.size {
		rest := extent{h.extent.off + keep, h.extent.size - keep}
		h.extent.size = keep
		b.mu.slots[slot] = h
		b.insert(rest)
		b.mu.changed.Broadcast()
	}
}

// AllocExtra returns a slot of n bytes in a segment of its own, at once.
func (b *Buffer) AllocExtra(n int64) (Slot, *Extra, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.allocExtra(n)
}

func (b *Buffer) allocExtra(n int64) (Slot, *Extra, error) {
	m, err := newMemory("hdmlp-staging-extra", max(n, 1))
	if err != nil {
		return Slot{}, nil, err
	}
	b.mu.lastSeg++
	b.mu.extra += int64(len(m.data))
	seg := b.mu.lastSeg
	id := b.newSlot(held{segment: seg, extra: &m}, extraSlot)
	return Slot{ID: id, Segment: seg, Data: m.data}, &Extra{seg, m.file, int64(len(m.data))}, nil
}

func (b *Buffer) newSlot(h held, kind uint32) uint32 {
	for {
		b.mu.lastSlot = (b.mu.lastSlot + 1) &^ extraSlot
		id := b.mu.lastSlot | kind
		if _, taken := b.mu.slots[id]; !taken {
			b.mu.slots[id] = h
			return id
		}
	}
}

// Hand notes that slots are described to the process, which may return them from
// now on.
func (b *Buffer) Hand(slots []uint32) {
	if len(slots) == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, slot := range slots {
		h, ok := b.mu.slots[slot]
		if invariants.Enabled {
			invariants.Check(ok || b.mu.closed,
				"staging: slot %d is described to the process, and is not in use", slot)
		}
		if ok {
			h.handed = true
			b.mu.slots[slot] = h
		}
	}
}

// Return takes a slot back from the process, as Free does. One that the process has
// not got is an error, because something may be writing to it.
func (b *Buffer) Return(slot uint32) (retired uint32, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.giveBack(slot)
}

// giveBack is Return; b.mu is held.
func (b *Buffer) giveBack(slot uint32) (retired uint32, err error) {
	if h, ok := b.mu.slots[slot]; ok && !h.handed {
		return 0, fmt.Errorf("staging buffer: slot %d was not handed over yet", slot)
	}
	return b.free(slot)
}

// collect takes back what the process has noted. b.mu is held.
func (b *Buffer) collect() {
	for b.mu.confused == nil && !b.mu.closed {
		slot, ok := b.mu.returns.next()
		if !ok {
			return
		}
		if slot&extraSlot != 0 {
			b.mu.confused = fmt.Errorf("staging buffer: slot %#x lies in an extra segment, and "+
				"was noted among the returns instead of acknowledged", slot)
			return
		}
		_, b.mu.confused = b.giveBack(slot)
	}
}

// Free takes a slot back that nobody writes to any more. retired is the extra
// segment that ended with it, 0 if none did. A slot that is not out is an error:
// whoever sent it is confused.
func (b *Buffer) Free(slot uint32) (retired uint32, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if invariants.Enabled {
		_, ok := b.mu.slots[slot]
		invariants.Check(ok || b.mu.closed, "staging: slot %d is freed, and is not in use", slot)
	}
	return b.free(slot)
}

// free is Free; b.mu is held.
func (b *Buffer) free(slot uint32) (retired uint32, err error) {
	h, ok := b.mu.slots[slot]
	if !ok {
		return 0, fmt.Errorf("staging buffer: slot %d is not in use", slot)
	}
	delete(b.mu.slots, slot)
	if h.extra != nil {
		b.mu.extra -= int64(len(h.extra.data))
		h.extra.close()
		return h.segment, nil
	}
	b.insert(h.extent)
	b.mu.changed.Broadcast()
	return 0, nil
}

// Urge says whether the process is blocked while nothing is on its way to it:
// then waiting for it to give slots back could last for ever.
func (b *Buffer) Urge(urgent bool) {
	b.mu.Lock()
	b.mu.urgent, b.mu.urgentFirst = urgent, false
	b.mu.Unlock()
	if urgent {
		b.wake()
	}
}

// UrgeFirst is Urge(true) where what is on its way to the process is what lacks room: for
// AllocFirst alone.
func (b *Buffer) UrgeFirst() {
	b.mu.Lock()
	b.mu.urgent, b.mu.urgentFirst = false, true
	b.mu.Unlock()
	b.wake()
}

// urgency is whether a caller of AllocFirst, or of Alloc, is urged. b.mu is held.
func (b *Buffer) urgency(first bool) *bool {
	if first {
		return &b.mu.urgentFirst
	}
	return &b.mu.urgent
}

// Look makes Alloc look at once for what the process has noted as free: it waits for a batch now.
func (b *Buffer) Look() { b.wake() }

func (b *Buffer) wake() {
	b.mu.Lock()
	b.mu.changed.Broadcast()
	b.mu.Unlock()
}

// Close unmaps everything. Nobody may still write to a slot; what the process
// has mapped stays valid for it.
func (b *Buffer) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.closed {
		return
	}
	b.mu.closed = true
	for _, h := range b.mu.slots {
		if h.extra != nil {
			h.extra.close()
		}
	}
	clear(b.mu.slots)
	b.ring.close()
	b.mu.changed.Broadcast()
}
