// Package staging implements the staging buffer, class 0 of the performance model: a ring in shared
// memory that the daemon fills with upcoming batches, and that one training process reads without
// copying.
//
// A Buffer allocates slots, contiguous parts of a memfd. The code that fills a slot owns it until
// it is described to the process. The process then owns it until it returns it, when the last array
// or tensor on it is collected. Slots are returned in any order, so the ring is kept as a list of
// free extents, used in ring order (next fit): a batch that the user keeps blocks only its own
// bytes.
//
// If a process keeps so many batches that no other fits, and asks for the next one, that batch gets
// an extra segment, which is released with its slot. So a program that collects batches in a list
// uses more memory, and never hangs.
//
// A process returns slots in one of two ways: by a frame (Return), or in the return ring, in shared
// memory after the ring, which the buffer polls when it needs memory (returns.go).
package staging

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/lib/invariants"
)

// align is the alignment of slots: a cache line, enough for every tensor type. (A window's: pages.)
const align = 64

// Slot is an allocated part of the buffer.
type Slot struct {
	ID      uint32 // the top bit is set if the slot is in an extra segment
	Segment uint32 // 0: the ring; otherwise an extra segment
	Offset  int64  // within the segment
	Data    []byte
}

// extraSlot is the bit of Slot.ID of slots in extra segments. Such a slot must be returned by a
// frame, because its segment ends with it.
const extraSlot = 1 << 31

// Extra is a segment created for one slot.
type Extra struct {
	Segment uint32
	File    *os.File
	Size    int64
}

// Buffer is one rank's staging buffer. Its methods are safe for concurrent use.
type Buffer struct {
	ring memory // includes the return ring after it
	size int64  // of the ring, at most: see limit
	unit int64  // alignment of slots

	// mu guards its fields. Those of returns are also accessed by the process.
	mu struct {
		sync.Mutex
		changed *sync.Cond // signals freed memory, urgency, polls, and closed

		// INVARIANT: free is sorted by offset, and its extents are disjoint, not empty and not
		// adjacent; free and the slots in the ring together cover the ring.
		free   []extent
		poison invariants.Poison // of free
		// next is where the last allocation ended, and the next search begins
		next int64
		// limit is the size of the part of the ring in which slots are allocated. It only grows.
		limit int64

		slots      map[uint32]held
		lastSlot   uint32
		returns    returnRing
		returnsErr error // an invalid entry in the return ring; no allocation succeeds any more
		lastSeg    uint32
		extra      int64 // bytes in extra segments
		urgent     bool  // the process is blocked, and nothing is on its way to it
		// urgentFirst is urgent, if what is on its way to the process lacks memory.
		urgentFirst bool
		closed      bool
	}
}

type held struct {
	segment uint32
	extent  extent
	extra   *memory // nil if in the ring
	sent    bool    // it was described to the process
}

// New returns a buffer whose ring has size bytes and may grow to most bytes (0: it does not grow),
// rounded up to whole pages. Pages take memory when they are first used. If the system does not
// allow most bytes of address space, the ring does not grow.
func New(size, most int64) (*Buffer, error) {
	page := int64(os.Getpagesize())
	whole := func(n int64) int64 { return max((n+page-1)/page*page, page) }
	size, most = whole(size), whole(max(size, most))
	ring, err := newMemory("hdmlp-staging", most+returnsSize)
	if err != nil && most > size {
		most = size
		ring, err = newMemory("hdmlp-staging", most+returnsSize)
	}
	if err != nil {
		return nil, err
	}
	b := &Buffer{ring: ring, size: most, unit: align}
	b.mu.returns = newReturnRing(ring.data[most:])
	b.mu.changed = sync.NewCond(&b.mu)
	b.mu.free = []extent{{0, most}}
	b.mu.limit = size
	b.mu.slots = make(map[uint32]held)
	return b, nil
}

// Ring returns the ring's memfd and its size in bytes. The ring is segment 0.
func (b *Buffer) Ring() (*os.File, int64) { return b.ring.file, b.size }

// Resident returns how many bytes of the ring occupy memory.
func (b *Buffer) Resident() int64 {
	var st unix.Stat_t
	if unix.Fstat(int(b.ring.file.Fd()), &st) != nil {
		return 0
	}
	return st.Blocks * 512
}

// HasReturnRing reports whether the process may return slots in the return ring, in the page after
// the ring in the ring's memfd.
func (b *Buffer) HasReturnRing() bool { return ordered }

// End publishes in shared memory that the stream ends before its nth batch; negative: it does not.
// The process sees this even if it has not yet received that batch, which may have been sent.
func (b *Buffer) End(n int) { atomic.StoreUint64(b.mu.returns.end(), uint64(n+1)) }

// Data returns a part of the ring, as the process sees it.
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

// Alloc allocates a slot of n bytes. It blocks until the ring has enough free memory, ctx is done,
// or the buffer is urged (see Urge). In the last case, or if n is larger than the ring, the slot is
// in an extra segment, which is returned as well.
func (b *Buffer) Alloc(ctx context.Context, n int64) (Slot, *Extra, error) {
	return b.alloc(ctx, n, false)
}

// AllocFirst is Alloc for the batch that the process gets next. It is urged by UrgeFirst only.
func (b *Buffer) AllocFirst(ctx context.Context, n int64) (Slot, *Extra, error) {
	return b.alloc(ctx, n, true)
}

func (b *Buffer) alloc(ctx context.Context, n int64, first bool) (Slot, *Extra, error) {
	stop := context.AfterFunc(ctx, b.wake)
	defer stop()
	var poll poller
	defer poll.end()
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
		if b.mu.returnsErr != nil {
			return Slot{}, nil, b.mu.returnsErr
		}
		if s, ok := b.fit(n); ok {
			return s, nil, nil
		}
		if urgent := b.urgency(first); *urgent {
			*urgent = false
			return b.allocExtra(n)
		}
		poll.again(b.wake)
		b.mu.changed.Wait()
	}
}

// TryAlloc allocates a slot of n bytes in the ring if it has enough free memory now.
func (b *Buffer) TryAlloc(n int64) (Slot, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.collect()
	if b.mu.closed || b.mu.returnsErr != nil {
		return Slot{}, false
	}
	return b.fit(n)
}

// Trim frees all but the first n bytes of a slot that was not described to the process yet. An
// extra segment keeps its size.
func (b *Buffer) Trim(slot uint32, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h, ok := b.mu.slots[slot]
	if invariants.Enabled {
		invariants.Check(ok || b.mu.closed, "staging: trim of slot %d, which is not in use", slot)
	}
	if keep := b.aligned(n); ok && h.extra == nil && keep < h.extent.size {
		rest := extent{h.extent.off + keep, h.extent.size - keep}
		h.extent.size = keep
		b.mu.slots[slot] = h
		b.insert(rest)
		b.mu.changed.Broadcast()
	}
}

// allocExtra allocates a slot of n bytes in an extra segment. b.mu must be held.
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
		b.mu.lastSlot = (b.mu.lastSlot + 1) &^ (extraSlot | windowBit)
		id := b.mu.lastSlot | kind
		if _, taken := b.mu.slots[id]; !taken {
			b.mu.slots[id] = h
			return id
		}
	}
}

// MarkSent marks slots as described to the process, which may return them from now on.
func (b *Buffer) MarkSent(slots []uint32) {
	if len(slots) == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, slot := range slots {
		h, ok := b.mu.slots[slot]
		if invariants.Enabled {
			invariants.Check(ok || b.mu.closed,
				"staging: slot %d is marked as sent, but is not in use", slot)
		}
		if ok {
			h.sent = true
			b.mu.slots[slot] = h
		}
	}
}

// Return frees a slot for the process, as Free does. A slot that was not sent to the process is an
// error, because it may still be written to.
func (b *Buffer) Return(slot uint32) (retired uint32, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.giveBack(slot)
}

// giveBack implements Return. b.mu must be held.
func (b *Buffer) giveBack(slot uint32) (retired uint32, err error) {
	if h, ok := b.mu.slots[slot]; ok && !h.sent {
		return 0, fmt.Errorf("staging buffer: slot %d was not sent yet", slot)
	}
	return b.free(slot)
}

// collect frees the slots in the return ring. b.mu must be held.
func (b *Buffer) collect() {
	for b.mu.returnsErr == nil && !b.mu.closed {
		slot, ok := b.mu.returns.next()
		if !ok {
			return
		}
		if slot&extraSlot != 0 {
			b.mu.returnsErr = fmt.Errorf("staging buffer: slot %#x in an extra segment was "+
				"returned in the return ring instead of by a frame", slot)
			return
		}
		_, b.mu.returnsErr = b.giveBack(slot)
	}
}

// Free frees a slot that is no longer written to. retired is the extra segment that ended with it,
// or 0. A slot that is not in use is an error.
func (b *Buffer) Free(slot uint32) (retired uint32, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if invariants.Enabled {
		_, ok := b.mu.slots[slot]
		invariants.Check(ok || b.mu.closed, "staging: slot %d is freed, but is not in use", slot)
	}
	return b.free(slot)
}

// free implements Free. b.mu must be held.
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

// Urge sets whether the process is blocked while nothing is on its way to it. Waiting for it to
// return slots could then last for ever, so an allocation gets an extra segment.
func (b *Buffer) Urge(urgent bool) {
	b.mu.Lock()
	b.mu.urgent, b.mu.urgentFirst = urgent, false
	b.mu.Unlock()
	if urgent {
		b.wake()
	}
}

// UrgeFirst is Urge(true) if what is on its way to the process lacks memory. It affects AllocFirst
// only.
func (b *Buffer) UrgeFirst() {
	b.mu.Lock()
	b.mu.urgent, b.mu.urgentFirst = false, true
	b.mu.Unlock()
	b.wake()
}

// urgency returns the flag that urges Alloc, or, if first is set, AllocFirst. b.mu must be held.
func (b *Buffer) urgency(first bool) *bool {
	if first {
		return &b.mu.urgentFirst
	}
	return &b.mu.urgent
}

// Poll makes a blocked Alloc poll the return ring at once, because the process waits for a batch
// now.
func (b *Buffer) Poll() { b.wake() }

func (b *Buffer) wake() {
	b.mu.Lock()
	b.mu.changed.Broadcast()
	b.mu.Unlock()
}

// Close unmaps all memory. No slot may still be written to. What the process has mapped remains
// valid for it.
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
