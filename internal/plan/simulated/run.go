// Package simulated is what a policy may define for the simulator in addition to its plan: how the
// plan is executed, if the engine cannot execute it (Runner), and how the simulator of the thesis
// defines the policy (Original). The engine does not import this package.
package simulated

import "github.com/hdmlp/hdmlp/internal/plan"

// Run is how the profile model executes a plan. The zero value is how the engine does.
type Run struct {
	// Ideal means that every sample is in the staging buffer when it is requested.
	Ideal bool
	// Drop, if not nil, means that a node drops its copy of a sample once training has read the
	// sample there for the last time. It returns the samples that then fill the space, in order, none
	// of which the plan places on the node; what the node does not read any more is left out. It is
	// for one job on the nodes.
	Drop func(node int) []int32
	// Cache, if not nil, returns a cache of a node in the memory of its class 1, which keeps and
	// evicts samples as they are read, whatever the plan.
	Cache func(node int) Cache
}

// Cache is a cache that no plan fills.
type Cache interface {
	// Read reads a sample, and reports whether the cache had it.
	Read(id int32) (hit bool)
}

// Runner is a policy whose plans the simulator does not execute as the engine would.
type Runner interface {
	plan.Policy
	// Run returns how to execute a plan that the policy made from the input.
	Run(in plan.Input, plan *plan.Plan) (Run, error)
}

// RunOf returns how the simulator executes a plan of the policy.
func RunOf(policy plan.Policy, in plan.Input, plan *plan.Plan) (Run, error) {
	if r, ok := policy.(Runner); ok {
		return r.Run(in, plan)
	}
	return Run{}, nil
}
