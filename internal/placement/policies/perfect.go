package policies

import (
	"github.com/hdmlp/hdmlp/internal/placement"
	"github.com/hdmlp/hdmlp/internal/placement/builder"
	"github.com/hdmlp/hdmlp/internal/placement/simulated"
)

// Perfect never waits: the lower bound of the runtime (thesis 4.1.4, PerfectPrefetcher).
type Perfect struct{}

// Name returns "perfect".
func (Perfect) Name() string { return "perfect" }

// About describes the policy.
func (Perfect) About() placement.About {
	return placement.About{
		Does: "never waits: the lower bound of the runtime",
		Line: placement.Line{Colour: 0x5b6470, Dashed: true},
	}
}

// Plan returns a plan without copies: every sample is in the staging buffer when it is needed.
func (p Perfect) Plan(in placement.Input) (*placement.Plan, error) {
	return builder.Nothing(p.Name(), true, in)
}

// Run returns how the simulator executes the policy's plans.
func (Perfect) Run(placement.Input, *placement.Plan) (simulated.Run, error) {
	return simulated.Run{Ideal: true}, nil
}

// Original returns the rules of PerfectPrefetcher.
func (Perfect) Original() simulated.Rules { return simulated.Rules{Staged: true} }
