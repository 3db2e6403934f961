package policies

import (
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/builder"
	"github.com/hdmlp/hdmlp/internal/plan/simulated"
)

// Staging fills the staging buffer ahead of time from the source, and caches nothing: double
// buffering, tf.data, torch's DataLoader (thesis 4.1.4, StagingPoolPrefetcher).
type Staging struct{}

// Name returns "staging".
func (Staging) Name() string { return "staging" }

// About describes the policy.
func (Staging) About() plan.About {
	return plan.About{
		Does:   "keeps nothing, and reads ahead, from the source or a warm cache",
		Engine: true,
		Stages: true,
		Line:   plan.Line{Colour: 0xe69f00},
	}
}

// Plan returns a plan without copies.
func (s Staging) Plan(in plan.Input) (*plan.Plan, error) {
	return builder.Nothing(s.Name(), true, in)
}

// Original returns the rules of StagingPoolPrefetcher.
func (Staging) Original() simulated.Rules { return simulated.Rules{Staging: true, Source: true} }
