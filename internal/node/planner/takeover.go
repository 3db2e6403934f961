package planner

import (
	"sync"

	"github.com/hdmlp/hdmlp/internal/plan"
)

// failover adapts the plan to the nodes that are alive: others take over the samples of nodes that
// are gone (plan.Plan.TakeOver), and give them back when these return. While nodes have not
// all know of a change they may disagree about owners. That costs a read from the source, because
// a node that is asked for a sample reads it.
type failover struct {
	mu    sync.Mutex // guards the following
	gone  map[int]bool
	plan  *plan.Plan // for all nodes; nil: there is none yet
	nodes []plan.Node
	size  func(id int) int64
	use   func(*plan.Plan) // adopts an adapted plan
}

// follow makes plan the one that is adapted from now on. use is called with the adapted plan at
// once and whenever it changes. Calls do not overlap.
func (r *failover) follow(plan *plan.Plan, nodes []plan.Node, size func(id int) int64,
	use func(*plan.Plan),
) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.plan = plan
	r.nodes = nodes
	r.size = size
	r.use = use
	r.apply()
}

// note records that a node is alive or gone.
func (r *failover) note(node int, there bool) {
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

// apply adapts the plan, and calls use. r.mu must be held.
func (r *failover) apply() {
	if r.plan != nil {
		r.use(r.plan.TakeOver(func(node int) bool { return !r.gone[node] }, r.nodes, r.size))
	}
}
