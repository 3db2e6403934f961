package placement

import (
	"fmt"
)

// Lead is the bootstrap window: the part of the stream that the ranks may read before the plan is
// in force. It is a number of global batches from a step of an epoch on.
type Lead struct {
	Epoch, Step int
	Steps       int // at most the steps of an epoch
}

// Starter is a policy whose plan takes at least a pass over the whole stream, and which defines
// what nodes do in the bootstrap window.
//
// In an epoch only one node needs each sample, except for repeats from padding. So until there is a
// plan each node reads from the source what it needs itself and, if nodes share their caches, owns
// it: all nodes derive this from the stream, remote reads are rare, and nothing is read twice. The
// samples read are kept on the node that read them or, if they do not fit, on the node with the
// most free capacity, and Resume passes this on to Plan: a plan leaves samples where they are. The
// longer the window, the more samples are on the node that needed them first instead of the one
// that needs them most often. That costs local hits, but no reads from the source.
type Starter interface {
	Policy
	// First returns the plan for the lead: what nodes hold already, then what they keep of the
	// lead, in the order in which it is read. It takes one pass over the lead.
	First(in Input, lead Lead) (*Plan, error)
}

// Resume returns the input for the plan that follows First: nodes hold what they held before, and
// what they will have kept at the end of their leads. leads is indexed by node; usually all are the
// same.
func Resume(p Starter, in Input, leads []Lead) (Input, error) {
	if len(leads) != len(in.Nodes) {
		return in, fmt.Errorf("placement: %d leads for %d nodes", len(leads), len(in.Nodes))
	}
	made := map[Lead]*Plan{}
	nodes := make([]Node, len(in.Nodes))
	in.From = leads[0].Epoch
	for n, lead := range leads {
		first := made[lead]
		if first == nil {
			var err error
			if first, err = p.First(in, lead); err != nil {
				return in, err
			}
			made[lead] = first
		}
		nodes[n] = in.Nodes[n]
		nodes[n].Held = first.Nodes[n].Classes
	}
	for _, lead := range leads {
		in.From = min(in.From, lead.Epoch)
	}
	in.Nodes = nodes
	return in, nil
}
