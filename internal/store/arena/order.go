package arena

import "slices"

// Order records the order in which samples were added. A removed sample's entry stays, and is
// skipped by Held, until as many entries are stale as are left: removal is amortized. Its owner's
// lock guards it.
type Order struct {
	added []int32
	// stale is how many entries are not a sample's last, or of a sample that is not held. It may be
	// too high: a sample may count as not held before Gone, and its entry be removed by another's.
	stale int
}

// NewOrder returns the order of samples that were added in this order, each once.
func NewOrder(added []int32) Order { return Order{added: added} }

// Came notes that a sample was added.
func (o *Order) Came(id int32) { o.added = append(o.added, id) }

// Gone notes that a sample was removed; held reports which samples are held.
func (o *Order) Gone(held func(id int32) bool) {
	if o.stale++; 2*o.stale > len(o.added) {
		o.added, o.stale = o.Held(held), 0
	}
}

// Held returns the samples that are held, in the order in which they were last added.
func (o *Order) Held(held func(id int32) bool) []int32 {
	if o.stale == 0 {
		return slices.Clone(o.added)
	}
	list := make([]int32, 0, max(len(o.added)-o.stale, 0))
	seen := make([]uint64, 0) // a bit for each sample: a map would take seconds for 10 million
	for _, id := range slices.Backward(o.added) {
		if !held(id) {
			continue
		}
		word, bit := int(id/64), uint64(1)<<(id%64)
		if word >= len(seen) {
			seen = append(seen, make([]uint64, word+1-len(seen))...)
		}
		if seen[word]&bit == 0 {
			seen[word] |= bit
			list = append(list, id)
		}
	}
	slices.Reverse(list)
	return list
}
