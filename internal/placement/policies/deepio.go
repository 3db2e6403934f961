package policies

import (
	"iter"
	"math/rand/v2"

	"github.com/hdmlp/hdmlp/internal/placement"
	"github.com/hdmlp/hdmlp/internal/placement/builder"
	"github.com/hdmlp/hdmlp/internal/placement/simulated"
)

// DeepIO keeps samples in RAM, class 1, which it fills before training, and nodes read from each
// other's (thesis 2.3, 4.1.4). If a node's share of the dataset fits, node i holds the i-th of N
// contiguous parts; otherwise, "hybrid", it starts with the sample at which the node before it
// stopped and holds as many as fit. In order, samples in nobody's RAM are read from the source when
// training asks for them.
type DeepIO struct {
	// Opportunistic: only samples in RAM are trained on. Every epoch is a full shuffle of these,
	// repeated where they are fewer than the epoch has positions; each position is as likely to be
	// read from any node as that node's share of them.
	Opportunistic bool
}

// Name is "deepio_ordered" or "deepio_opportunistic".
func (d DeepIO) Name() string {
	if d.Opportunistic {
		return "deepio_opportunistic"
	}
	return "deepio_ordered"
}

// About describes it.
func (d DeepIO) About() placement.About {
	does := "loads contiguous parts into memory before training"
	if d.Opportunistic {
		does += ", and trains on nothing else"
	}
	return placement.About{
		Does:   does,
		Stages: true,
		Needs:  placement.FirstClass,
		Copies: placement.OnePerSample,
		Line:   placement.Line{Colour: 0xc2699e, Dashed: d.Opportunistic},
	}
}

// Plan places contiguous parts, or as many as fit from where the node before stopped.
func (d DeepIO) Plan(in placement.Input) (*placement.Plan, error) {
	b, err := builder.New(&in)
	if err != nil {
		return nil, err
	}
	if err := builder.NeedClasses(d.Name(), &in, 1); err != nil {
		return nil, err
	}
	if b.PartsFit(1) {
		b.KeepParts(1)
	} else {
		b.KeepRuns(1)
	}
	p := b.FinishPreload(d.Name())
	if d.Opportunistic && len(owned(p)) == 0 {
		return nil, &placement.Unsupported{
			Policy: d.Name(),
			Reason: "no sample fits into class 1, and it trains on nothing else",
		}
	}
	return p, in.Ended()
}

// Run says how the simulator runs its plans.
func (d DeepIO) Run(in placement.Input, plan *placement.Plan) (run simulated.Run, err error) {
	run = simulated.Run{Preload: true, CacheFirst: true, Demand: true}
	if d.Opportunistic {
		run.Reorder, err = simulated.Shuffled(&in, [][]int32{owned(plan)})
	}
	return run, err
}

// owned are the samples that some node answers for.
func owned(p *placement.Plan) (ids []int32) {
	for k, owner := range p.Owner {
		if owner >= 0 {
			ids = append(ids, int32(k))
		}
	}
	return ids
}

// Original loads every node's share into memory, of the last node up to the last sample, if a
// node's share of the bytes fits there; otherwise a node begins where the one before it stopped,
// and loads until its memory is full. If opportunistic, every read is replaced by one of what the
// node has loaded itself, with probability 1/(N-1), or else of what the node before it has; node 0
// always reads its own (3.15).
func (d DeepIO) Original() simulated.Rules {
	rules := simulated.Rules{
		Staging: true, Remote: true, Class: 1,
		Loads: func(m *simulated.Machine) iter.Seq[simulated.Load] {
			return func(yield func(simulated.Load) bool) {
				n, next := len(m.Reads), 0
				fits := !(m.Dataset/float64(n) > m.Capacity[1])
				for i := range n {
					load := simulated.Load{Node: i, Class: 1, Before: true}
					share := m.Share(i)
					if i == n-1 {
						share.To = len(m.Sizes)
					}
					if fits {
						load.Samples = share.All()
					} else {
						room := simulated.Room{Capacity: m.Capacity[1]}
						load.Samples = room.Fill(m.Sizes,
							simulated.Range{From: next, To: len(m.Sizes)})
						next += len(load.Samples)
					}
					if !yield(load) {
						return
					}
				}
			}
		},
	}
	if d.Opportunistic {
		rules.Redraw = func(rng *rand.Rand, own []simulated.Range, i int) int32 {
			if i > 0 && rng.IntN(len(own)-1) != 0 {
				i--
			}
			return own[i].Draw(rng)
		}
	}
	return rules
}
