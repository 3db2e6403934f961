package policies

import (
	"iter"
	"strconv"

	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/plan/builder"
	"github.com/hdmlp/hdmlp/internal/plan/reorder"
	"github.com/hdmlp/hdmlp/internal/plan/simulated"
)

// Locality deals each global batch to the nodes that own its samples: first every node takes what
// is of its part of the dataset, up to its share of the batch, then the surplus goes to the nodes
// that have too little (Yang and Cong, Accelerating Data Loading in Deep Neural Network Training,
// section 2). The samples of a global batch stay the same, and so does training that sums gradients
// over all ranks; batch norm over a node's own part of a batch does not. Nodes cache their parts
// while they train in the first epoch.
//
// Parts are nominal: equal, and in a random order of the dataset, whatever fits into the caches.
type Locality struct {
	// Copies is how many nodes cache each sample, if that fits; default 1 (0). Beyond the paper: a
	// second copy leaves two thirds of what is to be read from others.
	Copies int
}

var localityOptions = []option.Option{{
	Key: "copies", Kind: option.Int, Default: "1", Min: 1, Max: 64,
	Help: "how many nodes cache each sample, where that fits",
}}

// Options implements plan.Optional.
func (Locality) Options() []option.Option { return localityOptions }

// With implements plan.Optional.
func (l Locality) With(values option.Values) plan.Policy {
	return Locality{Copies: option.Get[int](values, "copies")}
}

// copies returns how many nodes own each sample.
func (l Locality) copies(in *plan.Input) int { return min(max(l.Copies, 1), len(in.Nodes)) }

// Name returns "locality", with its options.
func (l Locality) Name() string {
	return plan.Named("locality", localityOptions, strconv.Itoa(max(l.Copies, 1)))
}

// About describes the policy.
func (l Locality) About() plan.About {
	about := plan.About{
		Does:   "deals each batch to the nodes that own its samples",
		Engine: true,
		Stages: true,
		Needs:  plan.SomeClass,
		Copies: plan.OnePerSample,
		Line:   plan.Line{Colour: 0x7db8de, Dashed: true},
	}
	if l.Copies > 1 {
		about.Copies = plan.OwnReads
	}
	return about
}

// Plan has each node hold its part.
func (l Locality) Plan(in plan.Input) (*plan.Plan, error) {
	b, err := builder.New(&in)
	if err != nil {
		return nil, err
	}
	if err := builder.NeedClasses(l.Name(), &in, builder.AllClasses); err != nil {
		return nil, err
	}
	parts := reorder.PartsOf(&in)
	for c := range l.copies(&in) {
		b.KeepOwn(builder.AllClasses, func(k int32) int { return parts.Copy(k, c) })
	}
	b.OwnHeld()
	p := b.Finish(l.Name(), true, true)
	p.ReadOnce, p.CacheFirst = true, true
	return p, in.Ended()
}

// Order returns the order in which batches are dealt.
func (l Locality) Order(in plan.Input) (*access.Order, error) {
	if err := builder.NeedDrawn(l.Name(), &in, true); err != nil {
		return nil, err
	}
	if in.Stream.Spec().Scheme == access.Whole { // every rank reads all samples
		return nil, nil
	}
	order := reorder.Regrouped(&in, l.Name(), reorder.PartsOf(&in), l.copies(&in))
	return &order, nil
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
