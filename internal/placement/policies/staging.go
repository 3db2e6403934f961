package policies

import (
	"github.com/hdmlp/hdmlp/internal/placement"
	"github.com/hdmlp/hdmlp/internal/placement/builder"
	"github.com/hdmlp/hdmlp/internal/placement/simulated"
)

// Staging fills the staging buffer ahead of time from the source, and caches nothing: double
// buffering, tf.data, torch's DataLoader (thesis 4.1.4, StagingPoolPrefetcher).
type Staging struct{}

// Name returns "staging".
func (Staging) Name() string { return "staging" }

// About describes the policy.
func (Staging) About() placement.About {
	return placement.About{
		Does:   "keeps nothing, and reads ahead, from the source or a warm cache",
		Engine: true,
		Stages: true,
		Line:   placement.Line{Colour: 0xe69f00},
	}
}

// Plan returns a plan without copies.
func (s Staging) Plan(in placement.Input) (*placement.Plan, error) {
	return builder.Nothing(s.Name(), true, in)
}

// Original returns the rules of StagingPoolPrefetcher.
func (Staging) Original() simulated.Rules { return simulated.Rules{Staging: true, Source: true} }
