package placement

import (
	"fmt"
)

// Lead is the part of the stream that the ranks may have come through before there is a plan:
// global batches, counted from one of an epoch.
type Lead struct {
	Epoch, Step int
	Steps       int // at most as many as an epoch has
}

// Starter is a policy whose plan takes a pass over the whole stream or more, and that knows what
// nodes may do meanwhile.
//
// In an epoch each sample is needed by one node, but for what padding repeats. So until there is a
// plan each node reads from the source what it needs itself, and where nodes share their caches
// answers for it: all nodes know that from the stream, hardly anybody has to ask anybody, and
// nothing is read twice. What is read so is kept where it was read, or with the node that has most
// room where it does not fit, and Resume tells Plan that it is there: a plan leaves samples where
// they are. The longer the lead, the more samples lie with the node that needed them first instead
// of the one that needs them most often. That costs local hits, and no read from the source.
type Starter interface {
	Policy
	// First returns what nodes do in the lead: what they hold already, then, in the order in which
	// it is read, what they keep of it. It takes one pass over the lead.
	First(in Input, lead Lead) (*Plan, error)
}

// Resume returns the input for the plan that follows First: nodes hold what they have, and what
// they kept or will have kept at the end of their leads. leads are by node; mostly all are the
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
