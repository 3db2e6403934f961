package policies

import (
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/builder"
	"github.com/hdmlp/hdmlp/internal/plan/simulated"
)

// Naive reads from the source on demand: no prefetching, no caching (thesis 4.1.4, BasePolicy).
type Naive struct{}

// Name returns "naive".
func (Naive) Name() string { return "naive" }

// About describes the policy.
func (Naive) About() plan.About {
	return plan.About{
		Does:   "keeps nothing, and reads when asked, from the source or a warm cache",
		Engine: true, OnDemand: true,
		Line: plan.Line{Colour: 0xc8501e},
	}
}

// Plan returns a plan without copies or staging ahead of time.
func (n Naive) Plan(in plan.Input) (*plan.Plan, error) {
	return builder.Nothing(n.Name(), false, in)
}

// Original returns the rules of BasePolicy.
func (Naive) Original() simulated.Rules { return simulated.Rules{} }
