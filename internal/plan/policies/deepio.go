package policies

import (
	"fmt"
	"iter"
	"math/rand/v2"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/plan/builder"
	"github.com/hdmlp/hdmlp/internal/plan/reorder"
	"github.com/hdmlp/hdmlp/internal/plan/simulated"
)

// DeepIO keeps samples in RAM, class 1, which it fills before training, and nodes read from each
// other's RAM (thesis 2.3, 4.1.4). If a node's share of the dataset fits, node i holds the i-th of
// N contiguous parts; otherwise ("hybrid") it holds as many samples as fit, starting where the
// previous node stopped. In ordered mode, samples in no node's RAM are read from the source when
// training requests them.
type DeepIO struct {
	// Opportunistic means that training uses only samples in RAM. Every epoch is a full shuffle of
	// these, repeated if they are fewer than the epoch's positions; the probability that a position
	// is read from a node is that node's share of the samples.
	Opportunistic bool
}

// Name returns "deepio_ordered" or "deepio_opportunistic".
func (d DeepIO) Name() string {
	if d.Opportunistic {
		return "deepio_opportunistic"
	}
	return "deepio_ordered"
}

// About describes the policy.
func (d DeepIO) About() plan.About {
	does := "loads contiguous parts into memory before training"
	if d.Opportunistic {
		does += ", and trains on nothing else"
	}
	return plan.About{
		Does:   does,
		Engine: true, OnDemand: true,
		Stages: true,
		Needs:  plan.FirstClass,
		Copies: plan.OnePerSample,
		Line:   plan.Line{Colour: 0xc2699e, Dashed: d.Opportunistic},
	}
}

// Plan places contiguous parts, or as many samples as fit from where the previous node stopped.
func (d DeepIO) Plan(in plan.Input) (*plan.Plan, error) {
	b, err := d.place(&in)
	if err != nil {
		return nil, err
	}
	p := b.FinishPreload(d.Name())
	p.Demand = true
	if d.Opportunistic {
		if err := d.holds(&in); err != nil {
			return nil, err
		}
	}
	return p, in.Ended()
}

// place decides which samples each node holds.
func (d DeepIO) place(in *plan.Input) (*builder.Builder, error) {
	b, err := builder.New(in)
	if err != nil {
		return nil, err
	}
	if err := builder.NeedClasses(d.Name(), in, 1); err != nil {
		return nil, err
	}
	if b.PartsFit(1) {
		b.KeepParts(1)
		b.KeepRest(1) // sizes differ, and what was held before takes room
	} else {
		b.KeepRuns(1)
	}
	return b, nil
}

// holds returns an error if class 1 of the nodes cannot hold what training is to use.
func (d DeepIO) holds(in *plan.Input) error {
	epoch := in.Stream.Epoch(in.From)
	var size, room int64
	for k := range in.Stream.Spec().Samples {
		if epoch.Has(k) {
			size += in.Size(k)
		}
	}
	for n := range in.Nodes {
		room += in.Nodes[n].Capacity[0]
	}
	if size <= room {
		return nil
	}
	return &plan.Unsupported{Policy: d.Name(), Reason: fmt.Sprintf("it trains only on samples in "+
		"memory; without a size of class 1 in the configuration these are %s, and class 1 of all "+
		"nodes together holds %s: set its size (memory), so that the order does not depend "+
		"on what happens to be free", human.Format(size), human.Format(room))}
}

// Order returns, if opportunistic, full shuffles of the samples that class 1 of the nodes holds.
func (d DeepIO) Order(in plan.Input) (*access.Order, error) {
	if !d.Opportunistic {
		return nil, nil
	}
	if err := builder.NeedDrawn(d.Name(), &in, false); err != nil {
		return nil, err
	}
	b, err := d.place(&in)
	if err != nil {
		return nil, err
	}
	ids := b.Owned()
	if len(ids) == 0 {
		return nil, &plan.Unsupported{
			Policy: d.Name(),
			Reason: "no sample fits into class 1, and it trains only on samples there",
		}
	}
	order := reorder.Shuffled(&in, d.Name(), [][]int32{ids})
	return &order, nil
}

// Original loads every node's share into memory (the last node's up to the last sample) if a node's
// share of the bytes fits there; otherwise a node begins where the previous one stopped, and loads
// until its memory is full. If opportunistic, every read is replaced by one of a sample that the
// node has loaded itself, with probability 1/(N-1), or else of one that the previous node has; node
// 0 always reads its own (3.15).
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
						space := simulated.Space{Capacity: m.Capacity[1]}
						load.Samples = space.Fill(m.Sizes,
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
