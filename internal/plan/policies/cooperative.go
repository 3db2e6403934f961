package policies

import (
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/builder"
)

// Cooperative minimises the fetch times of all nodes together; in thesis equation 3.13 each node
// minimises its own. The first copy of a sample, on any node, saves all nodes their later reads
// from the source, and its own node also the network transfers; a further copy only saves its own
// node the transfers. So first copies come first, by benefit per byte, each on the node that reads
// the sample most often among those where it fits; then nodes fill the remaining capacity with what
// they read most often themselves. Whatever the model's numbers, no sample is cached twice while
// another that is read and would fit is not cached: all nodes share the source, and its load is
// what does not scale. What all epochs leave out, as with drop_last, is not cached.
//
// On one node, and on any number of nodes whose classes hold the dataset, a run of the plan reads
// Bound bytes from the source, up to the unused bytes at the end of each class, which are fewer
// than the smallest sample that is not cached.
type Cooperative struct{}

// Name returns "cooperative".
func (Cooperative) Name() string { return "cooperative" }

// About describes the policy.
func (Cooperative) About() plan.About {
	return plan.About{
		Does:        "reads each sample from the source once for all nodes",
		Engine:      true,
		Stages:      true,
		Copies:      plan.OneOrOwnReads,
		CountsReads: true,
		Line:        plan.Line{Colour: 0x0b3c6f},
	}
}

// Plan computes the plan in a few passes over the reads.
func (c Cooperative) Plan(in plan.Input) (*plan.Plan, error) {
	b, err := builder.New(&in)
	if err != nil {
		return nil, err
	}
	alone := len(in.Nodes) == 1
	if alone && !in.Varies() { // it reads every sample in every epoch: one epoch is enough
		b.OneEpoch()
	}
	r := builder.NewReads(b)
	b.FirstCopies(r)
	if !alone && b.SecondCopiesPay() { // otherwise a second copy saves nothing
		b.FillOwn(r, 1)
		if b.NetworkIsSlow() {
			if b, err = c.onSlowLinks(in, r, b); err != nil {
				return nil, err
			}
		}
	}
	b.Tidy()
	b.SortClasses(r)
	r.Drop()
	b.Tidy()
	p := b.Finish(c.Name(), true, true)
	p.ReadOnce = b.PeersPay() // otherwise a remote read of a sample that is not cached does not pay
	return p, in.Ended()
}

// onSlowLinks returns the best of three ways to place copies if links are slow, of which b is one:
// first copies first. In the second, nodes keep what they read most often themselves; in the third,
// what they read first, so that no sample has to cross a link, or leave the source twice, to come
// to its owner.
func (Cooperative) onSlowLinks(in plan.Input, r *builder.Reads,
	b *builder.Builder,
) (*builder.Builder, error) {
	least := b.FetchTime(r) + b.FillTime()
	for _, place := range []func(*builder.Builder){
		func(b *builder.Builder) {
			b.FillOwn(r, 1)
			b.FirstCopies(r)
		},
		func(b *builder.Builder) {
			b.KeepFirstEpoch(builder.AllClasses)
			b.FirstCopies(r)
			b.FillOwn(r, 1)
		},
	} {
		other, err := builder.New(&in)
		if err != nil {
			return nil, err
		}
		place(other)
		if t := other.FetchTime(r) + other.FillTime(); t < least {
			b, least = other, t
		}
	}
	return b, nil
}

// First makes each node keep and own what it reads first.
func (c Cooperative) First(in plan.Input,
	window plan.BootstrapWindow,
) (*plan.Plan, error) {
	b, err := builder.NewWindow(&in, window)
	if err != nil {
		return nil, err
	}
	b.OwnKept()
	b.KeepFirst(window, b.PeersPay()) // else what another node keeps would cross a slow link
	p := b.FinishInOrder(c.Name(), true)
	p.ReadOnce = b.PeersPay()
	return p, in.Ended()
}
