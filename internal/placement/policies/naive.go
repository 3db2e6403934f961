package policies

import (
	"github.com/hdmlp/hdmlp/internal/placement"
	"github.com/hdmlp/hdmlp/internal/placement/builder"
	"github.com/hdmlp/hdmlp/internal/placement/simulated"
)

// Naive reads from the source when asked: no prefetching, no caching (thesis 4.1.4, BasePolicy).
type Naive struct{}

// Name is "naive".
func (Naive) Name() string { return "naive" }

// About describes it.
func (Naive) About() placement.About {
	return placement.About{
		Does:   "reads from the source when asked",
		Engine: true,
		Line:   placement.Line{Colour: 0xc8501e},
	}
}

// Plan plans no copies, and no staging ahead.
func (n Naive) Plan(in placement.Input) (*placement.Plan, error) {
	return builder.Nothing(n.Name(), false, in)
}

// Original is BasePolicy.
func (Naive) Original() simulated.Rules { return simulated.Rules{} }
