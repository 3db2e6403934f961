package staging

// Limit returns how many bytes of the ring are used for slots now.
func (b *Buffer) Limit() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.limit
}

// Growth returns by how many bytes Grow would enlarge the ring: half of what it has, as far as it
// may grow.
func (b *Buffer) Growth() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.growth()
}

func (b *Buffer) growth() int64 { return min(b.aligned(b.mu.limit/2), b.size-b.mu.limit) }

// Grow enlarges the ring by Growth.
func (b *Buffer) Grow() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.limit += b.growth()
	b.mu.changed.Broadcast()
}
