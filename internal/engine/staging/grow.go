package staging

// Limit returns how many bytes of the ring are used for slots now.
func (b *Buffer) Limit() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.limit
}

// Growth returns by how many bytes the ring is best enlarged at a time: half of what it has, as far
// as it may grow.
func (b *Buffer) Growth() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return min(b.aligned(b.mu.limit/2), b.size-b.mu.limit)
}

// Lacks returns by how many bytes the ring is to be enlarged to have a size, as far as it may grow.
func (b *Buffer) Lacks(size int64) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(min(b.aligned(size), b.size)-b.mu.limit, 0)
}

// Grow enlarges the ring by a number of bytes, as far as it may grow.
func (b *Buffer) Grow(bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.limit += min(bytes, b.size-b.mu.limit)
	b.mu.changed.Broadcast()
}
