package simulate

// ring is a queue. Invariant: the length of items is 0 or a power of two.
type ring[T any] struct {
	items       []T
	first, next int // entries first to next-1 are in the queue
}

func (r *ring[T]) empty() bool { return r.first == r.next }
func (r *ring[T]) len() int    { return r.next - r.first }

// at returns entry i.
func (r *ring[T]) at(i int) *T { return &r.items[i&(len(r.items)-1)] }

func (r *ring[T]) head() *T { return r.at(r.first) }

// add adds an entry at the end and returns it, for the caller to fill in. It may hold the values of
// an earlier entry.
func (r *ring[T]) add() *T {
	if r.len() == len(r.items) {
		items := make([]T, max(8, 2*len(r.items)))
		for i := r.first; i < r.next; i++ {
			items[i&(len(items)-1)] = *r.at(i)
		}
		r.items = items
	}
	r.next++
	return r.at(r.next - 1)
}

// pop removes the first entry. It remains valid until the next call of add.
func (r *ring[T]) pop() *T {
	r.first++
	return r.at(r.first - 1)
}

// remove removes entry i.
func (r *ring[T]) remove(i int) {
	for ; i > r.first; i-- {
		*r.at(i) = *r.at(i - 1)
	}
	r.first++
}
