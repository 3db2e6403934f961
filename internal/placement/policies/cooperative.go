package policies

import (
	"github.com/hdmlp/hdmlp/internal/placement"
	"github.com/hdmlp/hdmlp/internal/placement/builder"
)

// Cooperative minimises the fetch times of all nodes together, where thesis equation 3.13 has each
// node minimise its own. The first copy of a sample, on whichever node, saves every later read by
// anyone a read from the source, and that node's own reads the network as well; a further copy
// saves only its own node's reads the network. So first copies come first, by benefit per byte,
// each on the node that reads the sample most often and has room; then nodes fill what is left with
// what they themselves read most. No sample is cached twice while another that would fit is cached
// nowhere, whatever the model's numbers: the source is what all nodes share, and its load is what
// does not scale.
//
// On one node, and on any number whose classes hold the dataset, a run of the plan reads from the
// source what Bound says, up to the bytes left over at the end of each class, which are fewer than
// the smallest sample that is not cached.
type Cooperative struct{}

// Name is "cooperative".
func (Cooperative) Name() string { return "cooperative" }

// About describes it.
func (Cooperative) About() placement.About {
	return placement.About{
		Does:        "reads each sample from the source once for all nodes",
		Engine:      true,
		Stages:      true,
		Copies:      placement.OneOrOwnReads,
		CountsReads: true,
		Line:        placement.Line{Colour: 0x0b3c6f},
	}
}

// Plan computes the plan in a few passes over the reads.
func (c Cooperative) Plan(in placement.Input) (*placement.Plan, error) {
	b, err := builder.New(&in)
	if err != nil {
		return nil, err
	}
	alone := len(in.Nodes) == 1
	if alone && !in.Given() { // it reads every sample in every epoch: one epoch says as much as all
		b.OneEpoch()
	}
	r := builder.NewReads(b)
	b.FirstCopies(r)
	if !alone && b.SecondCopiesPay() { // otherwise a second copy saves nothing
		b.FillOwn(r, 1)
		if b.NetworkIsSlow() {
			own, err := builder.New(&in)
			if err != nil {
				return nil, err
			}
			own.FillOwn(r, 1)
			own.FirstCopies(r)
			if own.FetchTime(r) < b.FetchTime(r) {
				b = own
			}
		}
	}
	b.Tidy()
	b.SortClasses(r)
	r.Drop()
	b.Tidy()
	p := b.Finish(c.Name(), true, true)
	p.ReadOnce = b.PeersPay() // otherwise nobody asks an owner for what it has not got
	return p, in.Ended()
}

// First lets each node keep and answer for what it reads first.
func (c Cooperative) First(in placement.Input, lead placement.Lead) (*placement.Plan, error) {
	b, err := builder.NewLead(&in, lead)
	if err != nil {
		return nil, err
	}
	b.OwnKept()
	b.KeepFirst(lead, true)
	p := b.FinishInOrder(c.Name(), true)
	p.ReadOnce = b.PeersPay()
	return p, in.Ended()
}
