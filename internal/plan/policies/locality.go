package policies

import (
	"iter"

	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/plan/builder"
	"github.com/hdmlp/hdmlp/internal/plan/simulated"
)

// Locality partitions the dataset over the nodes' caches, which are filled before training, and
// redistributes each global batch so that nodes mostly read what they hold: first every node takes
// what it holds, up to its share of the batch, then the surplus and what no node holds go to the
// nodes that have too little (Yang and Cong, Accelerating Data Loading in Deep Neural Network
// Training, section 2). The samples of a global batch stay the same, and so does the training.
type Locality struct{}

// Name returns "locality".
func (Locality) Name() string { return "locality" }

// About describes the policy.
func (Locality) About() plan.About {
	return plan.About{
		Does:   "distributes each batch by which node holds what",
		Stages: true,
		Needs:  plan.SomeClass,
		Copies: plan.OnePerSample,
		Line:   plan.Line{Colour: 0x7db8de, Dashed: true},
	}
}

// Plan partitions the dataset.
func (l Locality) Plan(in plan.Input) (*plan.Plan, error) {
	b, err := builder.New(&in)
	if err != nil {
		return nil, err
	}
	if err := builder.NeedClasses(l.Name(), &in, builder.AllClasses); err != nil {
		return nil, err
	}
	b.KeepParts(builder.AllClasses)
	return b.FinishPreload(l.Name()), in.Ended()
}

// Run returns how the simulator executes the policy's plans.
func (Locality) Run(in plan.Input, plan *plan.Plan) (simulated.Run, error) {
	run := simulated.Run{Preload: true, CacheFirst: true}
	if in.Stream.Spec().Scheme != access.Whole { // with Whole, every node reads all samples
		run.Reorder = simulated.Regrouped(&in, plan.Owner)
	}
	return run, nil
}

// Original loads every node's share into class 2 while it fits, and leaves the order as it is.
func (Locality) Original() simulated.Rules {
	return simulated.Rules{
		Staging: true, Remote: true, Source: true, Class: 2,
		Loads: func(m *simulated.Machine) iter.Seq[simulated.Load] {
			return func(yield func(simulated.Load) bool) {
				for i := range m.Reads {
					space := simulated.Space{Capacity: m.Capacity[2]}
					if !yield(simulated.Load{
						Node:    i,
						Class:   2,
						Before:  true,
						Samples: space.Fill(m.Sizes, m.Share(i)),
					}) {
						return
					}
				}
			}
		},
	}
}
