package planner

import (
	"sync"

	"github.com/hdmlp/hdmlp/internal/placement"
)

// roster keeps the plan in step with which nodes are there: the samples of those that are gone are
// taken over by others (placement.Plan.TakeOver), and given back when they return. What the owners
// of a moment do not agree on, because they have not heard of it at the same time, costs a read
// from the source, since a node that is asked for a sample reads it.
type roster struct {
	mu    sync.Mutex
	gone  map[int]bool
	plan  *placement.Plan // for when all are there; nil: there is none yet
	nodes []placement.Node
	size  func(id int) int64
	use   func(*placement.Plan)
}

// follow has the plan used, from now on as it is for the nodes that are there. use is called at
// once, and whenever the plan becomes another, one call at a time.
func (r *roster) follow(plan *placement.Plan, nodes []placement.Node, size func(id int) int64,
	use func(*placement.Plan),
) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.plan, r.nodes, r.size, r.use = plan, nodes, size, use
	r.apply()
}

// note takes notice that a node is there, or gone.
func (r *roster) note(node int, there bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone == nil {
		r.gone = make(map[int]bool)
	}
	if r.gone[node] == there {
		r.gone[node] = !there
		r.apply()
	}
}

// apply uses the plan as it is now. r.mu is held.
func (r *roster) apply() {
	if r.plan != nil {
		r.use(r.plan.TakeOver(func(node int) bool { return !r.gone[node] }, r.nodes, r.size))
	}
}
