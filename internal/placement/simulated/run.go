// Package simulated is what a policy may say to the simulator besides its plan: how a plan is run
// where the engine has no such way (Runner), and how the simulator of the thesis has the policy
// (Original). The engine does not know this room.
package simulated

import "github.com/hdmlp/hdmlp/internal/placement"

// Run is how the profile model runs a plan. The zero value is how the engine does.
type Run struct {
	// Ideal: every sample is in the staging buffer when it is asked for.
	Ideal bool
	// Preload: classes are filled before training starts.
	Preload bool
	// CacheFirst: what lies in a class is not read from the source, even where that is faster.
	CacheFirst bool
	// Demand: what lies in no class is read when training asks for it, not ahead of time.
	Demand bool
	// Reorder, if not nil, returns the order of an epoch, in place of the stream's. The batches
	// have the sizes that the stream gives them. What it returns is safe for concurrent use.
	Reorder func(epoch int) Batches
}

// Batches is the order of an epoch, node by node.
type Batches interface {
	// Batch appends to dst the samples of the node's batch at the step.
	Batch(dst []int32, node, step int) []int32
}

// Runner is a policy whose plans the simulator runs in a way of their own.
type Runner interface {
	placement.Policy
	// Run says how to run a plan that the policy made of the input.
	Run(in placement.Input, plan *placement.Plan) (Run, error)
}

// RunOf returns how the simulator runs a plan of the policy.
func RunOf(policy placement.Policy, in placement.Input, plan *placement.Plan) (Run, error) {
	if r, ok := policy.(Runner); ok {
		return r.Run(in, plan)
	}
	return Run{}, nil
}
