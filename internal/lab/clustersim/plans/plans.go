// Package plans has nodes of a simulated cluster plan as nodes of large jobs do: while batches
// already flow.
package plans

import (
	"errors"

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
	}
	return planner.Strategy{}
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
