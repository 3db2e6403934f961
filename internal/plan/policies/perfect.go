package policies

import (
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/builder"
	"github.com/hdmlp/hdmlp/internal/plan/simulated"
)

// Perfect never waits: the lower bound of the runtime (thesis 4.1.4, PerfectPrefetcher).
type Perfect struct{}

// Name returns "perfect".
func (Perfect) Name() string { return "perfect" }

// About describes the policy.
func (Perfect) About() plan.About {
	return plan.About{
		Does: "never waits: the lower bound of the runtime",
		Line: plan.Line{Colour: 0x5b6470, Dashed: true},
	}
}

// Plan returns a plan without copies: every sample is in the staging buffer when it is needed.
func (p Perfect) Plan(in plan.Input) (*plan.Plan, error) {
	return builder.Nothing(p.Name(), true, in)
}

// Run returns how the simulator executes the policy's plans.
func (Perfect) Run(plan.Input, *plan.Plan) (simulated.Run, error) {
	return simulated.Run{Ideal: true}, nil
}

// Original returns the rules of PerfectPrefetcher.
func (Perfect) Original() simulated.Rules { return simulated.Rules{Staged: true} }
