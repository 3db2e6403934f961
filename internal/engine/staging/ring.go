package staging

import "github.com/hdmlp/hdmlp/internal/lib/invariants"

type extent struct{ off, size int64 }

// fit allocates n bytes from the ring: from the first large enough extent after the last
// allocation, or else from the first one of all. b.mu must be held.
func (b *Buffer) fit(n int64) (Slot, bool) {
	n = b.aligned(n)
	best := -1
	for i, e := range b.mu.free {
		if min(e.size, b.mu.limit-e.off) < n {
			continue
		}
		if best < 0 {
			best = i
		}
		if e.off >= b.mu.next {
			best = i
			break
		}
	}
	if best < 0 {
		return Slot{}, false
	}
	e := &b.mu.free[best]
	got := extent{e.off, n}
	e.off, e.size = e.off+n, e.size-n
	if e.size == 0 {
		b.mu.free = append(b.mu.free[:best], b.mu.free[best+1:]...)
	}
	b.mu.next = got.off + n
	b.mu.poison.Reserve(b.ring.data, got.off, b.mu.next)
	id := b.newSlot(held{extent: got}, 0)
	return Slot{ID: id, Offset: got.off, Data: b.ring.data[got.off : got.off+n : got.off+n]}, true
}

// aligned returns the size of a slot for n bytes.
func (b *Buffer) aligned(n int64) int64 {
	return max((n+b.unit-1)/b.unit*b.unit, b.unit)
}

// insert adds an extent to the free list, and merges it with its neighbours. b.mu must be held.
func (b *Buffer) insert(e extent) {
	b.mu.poison.Release(b.ring.data, e.off, e.off+e.size)
	free := b.mu.free
	i := 0
	for i < len(free) && free[i].off < e.off {
		i++
	}
	joinsPrev := i > 0 && free[i-1].off+free[i-1].size == e.off
	joinsNext := i < len(free) && e.off+e.size == free[i].off
	switch {
	case joinsPrev && joinsNext:
		free[i-1].size += e.size + free[i].size
		free = append(free[:i], free[i+1:]...)
	case joinsPrev:
		free[i-1].size += e.size
	case joinsNext:
		free[i].off, free[i].size = e.off, free[i].size+e.size
	default:
		free = append(free, extent{})
		copy(free[i+1:], free[i:])
		free[i] = e
	}
	b.mu.free = free
	if invariants.Enabled {
		b.checkFree()
	}
}

// checkFree panics if the free extents violate the invariants of b.mu. b.mu must be held.
func (b *Buffer) checkFree() {
	used, end := b.size, int64(-1)
	for _, e := range b.mu.free {
		invariants.Check(e.size > 0 && e.off > end, "staging: free extents %v", b.mu.free)
		used, end = used-e.size, e.off+e.size
	}
	for _, h := range b.mu.slots {
		if h.extra == nil {
			used -= h.extent.size
		}
	}
	invariants.Check(used == 0 && end <= b.size,
		"staging: %d bytes are neither free nor in a slot; free extents are %v", used, b.mu.free)
}
