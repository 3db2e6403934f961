// Package plans has nodes of a simulated cluster plan as large jobs and changed machines have them
// plan: while batches already flow, and again while the job runs.
package plans

import (
	"errors"
	"slices"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/clustersim/script"
	"github.com/hdmlp/hdmlp/internal/node/planner"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
)

// Strategy returns how a node of a script plans.
func Strategy(s *script.Script, node int) planner.Strategy {
	switch {
	case s.Plans == script.Failing:
		return planner.Strategy{
			AtOnce: -1, Policy: func(string) (plan.Policy, error) {
				return failing{fails: node == s.Unplanned()}, nil
			},
		}
	case s.Plans == script.Meanwhile:
		return planner.Strategy{AtOnce: -1}
	case s.Plans != "":
		return planner.Strategy{
			AtOnce: time.Hour,
			Policy: func(string) (plan.Policy, error) { return poor{how: s.Plans}, nil },
		}
	}
	return planner.Strategy{}
}

// poor is the default policy, except that its plans are poor as long as nothing is measured.
type poor struct {
	policies.Cooperative
	how script.Plans
}

// Plan implements plan.Policy.
func (p poor) Plan(in plan.Input) (*plan.Plan, error) {
	bare := func(n plan.Node) bool { return len(n.Capacity) == 0 }
	if in.Env != nil || slices.ContainsFunc(in.Nodes, bare) {
		return p.Cooperative.Plan(in)
	}
	if p.how == script.Sparing {
		nodes := make([]plan.Node, len(in.Nodes))
		for n := range nodes {
			nodes[n] = in.Nodes[n]
			nodes[n].Capacity = make([]int64, len(in.Nodes[n].Capacity))
			nodes[n].Capacity[0] = in.Nodes[n].Capacity[0] / 4
		}
		in.Nodes = nodes
		return p.Cooperative.Plan(in)
	}
	plan, err := p.Cooperative.Plan(in)
	if err != nil {
		return nil, err
	}
	for k := range plan.Owner {
		plan.Owner[k] = -1
	}
	for n := range plan.Nodes {
		class, room := plan.Nodes[n].Classes[0], in.Nodes[n].Capacity[0]
		fit := 0
		for fit < len(class) && in.Size(fit) <= room {
			room -= in.Size(fit)
			class[fit] = int32(fit)
			plan.Owner[fit] = int32(fit % len(plan.Nodes))
			fit++
		}
		plan.Nodes[n].Classes[0] = class[:fit]
	}
	return plan, nil
}

// failing is the default policy, whose plan may fail.
type failing struct {
	policies.Cooperative
	fails bool
}

// Plan implements plan.Policy.
func (p failing) Plan(in plan.Input) (*plan.Plan, error) {
	if p.fails {
		return nil, errors.New("the plan needs more memory than there is")
	}
	return p.Cooperative.Plan(in)
}
