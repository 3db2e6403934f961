package policies

import (
	"github.com/hdmlp/hdmlp/internal/placement"
	"github.com/hdmlp/hdmlp/internal/placement/builder"
	"github.com/hdmlp/hdmlp/internal/placement/simulated"
)

// Naive reads from the source on demand: no prefetching, no caching (thesis 4.1.4, BasePolicy).
type Naive struct{}

// Name returns "naive".
func (Naive) Name() string { return "naive" }

// About describes the policy.
func (Naive) About() placement.About {
	return placement.About{
		Does:   "keeps nothing, and reads when asked, from the source or a warm cache",
		Engine: true,
		Line:   placement.Line{Colour: 0xc8501e},
	}
}

// Plan returns a plan without copies or staging ahead of time.
func (n Naive) Plan(in placement.Input) (*placement.Plan, error) {
	return builder.Nothing(n.Name(), false, in)
}

// Original returns the rules of BasePolicy.
func (Naive) Original() simulated.Rules { return simulated.Rules{} }
