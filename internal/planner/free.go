package planner

import (
	"slices"

	"github.com/hdmlp/hdmlp/internal/placement"
)

// free is what a plan leaves free.
type free struct {
	classes []int64 // bytes, of this node
	owned   int64   // bytes of the samples that some node holds
}

// few is the share of a capacity or of a dataset that is not worth a word.
const few = 0.05

// Free returns, by class of this node, how many bytes the plan in force leaves free although nodes
// do not hold the needed bytes, or 0: reads of the class and of the source at the same time take
// the least time then (builder.LimitSlowClasses). It is nil if there is no such class.
func (p *Planner) Free(needed int64) []int64 {
	f := p.free.Load()
	if f == nil || float64(needed-f.owned) <= few*float64(needed) {
		return nil
	}
	return f.classes
}

// freeBy returns what a plan, which was made for these nodes, leaves free; nil: it has no say.
func (p *Planner) freeBy(plan *placement.Plan, nodes []placement.Node) *free {
	if plan.OnRead || plan.Owner == nil || p.o.Me >= len(nodes) {
		return nil
	}
	f := &free{classes: slices.Clone(nodes[p.o.Me].Capacity)}
	for k, owner := range plan.Owner {
		if owner >= 0 {
			f.owned += p.o.Size(k)
		}
	}
	for j, ids := range p.ours(plan) {
		capacity := f.classes[j]
		for _, k := range ids {
			f.classes[j] -= p.o.Size(int(k))
		}
		if p.o.Classes[j].KeepsAll || float64(f.classes[j]) <= few*float64(capacity) {
			f.classes[j] = 0
		}
	}
	return f
}
