package policies

import (
	"fmt"
	"iter"
	"math/rand/v2"

	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/plan/builder"
	"github.com/hdmlp/hdmlp/internal/plan/reorder"
	"github.com/hdmlp/hdmlp/internal/plan/simulated"
)

// Sharded stages disjoint contiguous shards on the nodes before training, as much of each as fits
// into all classes; a node trains only on its shard, in a new order in each epoch (Kurth et al.;
// thesis 2.3, parallel data staging).
type Sharded struct{}

// Name returns "sharded".
func (Sharded) Name() string { return "sharded" }

// About describes the policy.
func (Sharded) About() plan.About {
	return plan.About{
		Does:   "has each node train on a shard of its own",
		Engine: true,
		Stages: true,
		Needs:  plan.SomeClass,
		Copies: plan.OnEveryNode,
		Line:   plan.Line{Colour: 0x7a4a21},
	}
}

// Plan stages the shards.
func (s Sharded) Plan(in plan.Input) (*plan.Plan, error) {
	b, err := s.place(&in)
	if err != nil {
		return nil, err
	}
	p := b.FinishPreload(s.Name())
	p.Remote, p.Owner = false, nil
	return p, in.Ended()
}

// place decides which samples each node holds.
func (s Sharded) place(in *plan.Input) (*builder.Builder, error) {
	b, err := builder.New(in)
	if err != nil {
		return nil, err
	}
	if err := builder.NeedClasses(s.Name(), in, builder.AllClasses); err != nil {
		return nil, err
	}
	b.KeepParts(builder.AllClasses)
	return b, nil
}

// empty returns why a node has no shard.
func (Sharded) empty(in *plan.Input, node int) string {
	if samples := in.Stream.Spec().Samples; samples < len(in.Nodes) {
		return fmt.Sprintf("the dataset has %d samples for %d nodes, and each trains on a shard of "+
			"its own", samples, len(in.Nodes))
	}
	return fmt.Sprintf("no sample of its shard fits on node %d, which trains only on its shard",
		node)
}

// Order returns the order of nodes that train on their shards.
func (s Sharded) Order(in plan.Input) (*access.Order, error) {
	if err := builder.NeedDrawn(s.Name(), &in, false); err != nil {
		return nil, err
	}
	b, err := s.place(&in)
	if err != nil {
		return nil, err
	}
	shards := make([][]int32, len(in.Nodes))
	for n := range shards {
		if shards[n] = b.Held(n); len(shards[n]) == 0 {
			return nil, &plan.Unsupported{
				Policy: s.Name(),
				Reason: s.empty(&in, n),
			}
		}
	}
	order := reorder.Shuffled(&in, s.Name(), shards)
	return &order, nil
}

// Original loads every node's share into class 2 while it fits, and then, from other nodes, the
// samples below its share (3.13) while they fit. Every read is one of the node's own share, drawn
// with replacement (3.15).
func (Sharded) Original() simulated.Rules {
	return simulated.Rules{
		Staging: true, Class: 2,
		Loads: func(m *simulated.Machine) iter.Seq[simulated.Load] {
			return func(yield func(simulated.Load) bool) {
				for i := range m.Reads {
					space, share := simulated.Space{Capacity: m.Capacity[2]}, m.Share(i)
					own := simulated.Load{
						Node:    i,
						Class:   2,
						Before:  true,
						Samples: space.Fill(m.Sizes, share),
					}
					more := simulated.Load{
						Node:    i,
						Class:   2,
						Before:  true,
						Remote:  true,
						Samples: space.Fill(m.Sizes, simulated.Range{To: share.From}),
					}
					if !yield(own) || !yield(more) {
						return
					}
				}
			}
		},
		Redraw: func(rng *rand.Rand, own []simulated.Range, i int) int32 {
			return own[i].Draw(rng)
		},
	}
}
