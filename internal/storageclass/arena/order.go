package arena

import "slices"

// Order remembers in which order samples came. A sample that has gone costs nothing until as many
// have gone as are left: its entries stay, and Held leaves them out. Its owner has the lock.
type Order struct {
	came []int32
	gone int // entries that are not a sample's last, or whose sample is not held
}

// NewOrder returns the order of samples that came like this, each once.
func NewOrder(came []int32) Order { return Order{came: came} }

// Came notes that a sample is held from now on.
func (o *Order) Came(id int32) { o.came = append(o.came, id) }

// Gone notes that a sample which came is not held any more; held reports which are.
func (o *Order) Gone(held func(id int32) bool) {
	if o.gone++; 2*o.gone > len(o.came) {
		o.came, o.gone = o.Held(held), 0
	}
}

// Held returns the samples that are held, in the order in which they came last.
func (o *Order) Held(held func(id int32) bool) []int32 {
	if o.gone == 0 {
		return slices.Clone(o.came)
	}
	seen := make(map[int32]bool, len(o.came)-o.gone)
	list := make([]int32, 0, len(o.came)-o.gone)
	for _, id := range slices.Backward(o.came) {
		if !seen[id] && held(id) {
			seen[id] = true
			list = append(list, id)
		}
	}
	slices.Reverse(list)
	return list
}
