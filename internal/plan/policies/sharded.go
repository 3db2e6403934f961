package policies

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"

	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/builder"
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
		Stages: true,
		Needs:  plan.SomeClass,
		Copies: plan.OnEveryNode,
		Line:   plan.Line{Colour: 0x7a4a21},
	}
}

// Plan stages the shards.
func (s Sharded) Plan(in plan.Input) (*plan.Plan, error) {
	b, err := builder.New(&in)
	if err != nil {
		return nil, err
	}
	if err := builder.NeedClasses(s.Name(), &in, builder.AllClasses); err != nil {
		return nil, err
	}
	b.KeepParts(builder.AllClasses)
	p := b.FinishPreload(s.Name())
	for n := range p.Nodes {
		if len(shard(p, n)) == 0 {
			return nil, &plan.Unsupported{
				Policy: s.Name(),
				Reason: fmt.Sprintf("no sample of its shard fits on node %d, which trains only "+
					"on its shard", n),
			}
		}
	}
	p.Remote, p.Owner = false, nil
	return p, in.Ended()
}

// shard returns the samples that a node holds, by ID.
func shard(p *plan.Plan, node int) []int32 {
	ids := slices.Concat(p.Nodes[node].Classes...)
	slices.Sort(ids)
	return ids
}

// Run returns how the simulator executes the policy's plans.
func (Sharded) Run(in plan.Input, plan *plan.Plan) (run simulated.Run, err error) {
	run = simulated.Run{Preload: true, CacheFirst: true}
	held := make([][]int32, len(plan.Nodes))
	for n := range held {
		held[n] = shard(plan, n)
	}
	run.Reorder, err = simulated.Shuffled(&in, held)
	return run, err
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
