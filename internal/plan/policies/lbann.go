package policies

import (
	"fmt"
	"iter"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/builder"
	"github.com/hdmlp/hdmlp/internal/plan/simulated"
)

// LBANN is the distributed in-memory data store of LBANN (thesis 2.3, 4.1.4): the nodes' RAM, class
// 1, holds the dataset, and each node reads from the others what it does not hold. It does not
// support datasets that are larger.
type LBANN struct {
	// Preloading means that node i loads the i-th of N contiguous parts before training. Otherwise
	// ("dynamic") a node keeps what it reads in the first epoch.
	Preloading bool
}

// Name returns "lbann_preloading" or "lbann_dynamic".
func (l LBANN) Name() string {
	if l.Preloading {
		return "lbann_preloading"
	}
	return "lbann_dynamic"
}

// About describes the policy.
func (l LBANN) About() plan.About {
	does := "keeps each sample in the memory of the node that reads it first"
	if l.Preloading {
		does = "loads the whole dataset into the nodes' memory before training"
	}
	return plan.About{
		Does:   does,
		Engine: true,
		Stages: true,
		Needs:  plan.FirstClass,
		Copies: plan.OnePerSample,
		Line:   plan.Line{Colour: 0x11806a, Dashed: l.Preloading},
	}
}

// Plan assigns each sample to one node.
func (l LBANN) Plan(in plan.Input) (*plan.Plan, error) {
	b, err := builder.New(&in)
	if err != nil {
		return nil, err
	}
	if err := builder.NeedClasses(l.Name(), &in, 1); err != nil {
		return nil, err
	}
	var size, room int64
	for k := range in.Stream.Spec().Samples {
		if in.Stream.Has(k) {
			size += in.Size(k)
		}
	}
	for n := range in.Nodes {
		room += in.Nodes[n].Capacity[0]
	}
	if size > room {
		return nil, &plan.Unsupported{Policy: l.Name(), Reason: fmt.Sprintf(
			"the dataset has %s, class 1 of all nodes together %s; it must hold the dataset",
			human.Format(size), human.Format(room))}
	}
	if l.Preloading {
		b.KeepParts(1)
	} else {
		b.OwnHeld()
		b.KeepFirstEpoch(1)
	}
	b.KeepRest(1) // sizes differ, so a share may exceed the mean
	if l.Preloading {
		return b.FinishPreload(l.Name()), in.Ended()
	}
	p := b.Finish(l.Name(), true, true)
	p.OnRead, p.ReadOnce = true, true
	p.CacheFirst = true
	return p, in.Ended()
}

// Original makes every node load its share before training or, if dynamic, its first floor(F/N)
// samples, or those of its first epoch if they are fewer, in order, during training.
func (l LBANN) Original() simulated.Rules {
	return simulated.Rules{
		Staging: true, Remote: true, Class: 1,
		Refuses: func(m *simulated.Machine) string {
			if all := float64(len(m.Reads)) * m.Capacity[1]; m.Dataset > all {
				return fmt.Sprintf("the dataset has %.0f MB; class 1 of all nodes together "+
					"holds %.0f MB", m.Dataset, all)
			}
			return ""
		},
		Loads: func(m *simulated.Machine) iter.Seq[simulated.Load] {
			return func(yield func(simulated.Load) bool) {
				for i := range m.Reads {
					load := simulated.Load{Node: i, Class: 1, Before: l.Preloading}
					if l.Preloading {
						load.Samples = m.Share(i).All()
					} else {
						load.Samples = m.Reads[i][:min(m.PerEpoch[i], len(m.Sizes)/len(m.Reads))]
					}
					if !yield(load) {
						return
					}
				}
			}
		},
	}
}
