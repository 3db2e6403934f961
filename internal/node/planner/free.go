package planner

import "slices"

// minFreeShare is the share of a class or of a dataset that is not worth a word.
const minFreeShare = 0.05

// Free returns, by class of this node, how many bytes the plan in force leaves free although nodes
// do not hold the needed bytes, or 0: the class is slower than the source, and reads of both at the
// same time take the least time. It is nil if there is no such class, or no plan yet.
func (p *Planner) Free(needed int64) []int64 {
	plan := p.plan.Load()
	if plan == nil || p.Planning() || p.o.Me >= len(plan.Nodes) {
		return nil
	}
	withheld := plan.Nodes[p.o.Me].Withheld
	if len(withheld) == 0 || slices.Max(withheld) == 0 {
		return nil
	}
	owned := int64(0)
	for k, owner := range plan.Owner {
		if owner >= 0 {
			owned += p.o.Size(k)
		}
	}
	if float64(needed-owned) <= minFreeShare*float64(needed) {
		return nil
	}
	free := make([]int64, len(withheld))
	for j, bytes := range withheld {
		if !p.o.Classes[j].KeepsAll && float64(bytes) > minFreeShare*float64(p.o.Classes[j].Capacity) {
			free[j] = bytes
		}
	}
	return free
}
