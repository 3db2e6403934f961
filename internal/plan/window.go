package plan

import (
	"fmt"
)

// BootstrapWindow is the part of the stream that the ranks may read before the plan is in force: a
// number of global batches from a step of an epoch on.
type BootstrapWindow struct {
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
	// First returns the plan for the window: what nodes hold already, then what they keep of the
	// window, in the order in which it is read. It takes one pass over the window.
	First(in Input, window BootstrapWindow) (*Plan, error)
}

// Resume returns the input for the plan that follows First: nodes hold what they held before, and
// what they will have kept at the end of their windows. windows is indexed by node; usually all are
// the same.
func Resume(p Starter, in Input, windows []BootstrapWindow) (Input, error) {
	if len(windows) != len(in.Nodes) {
		return in, fmt.Errorf("plan: %d windows for %d nodes", len(windows), len(in.Nodes))
	}
	made := map[BootstrapWindow]*Plan{}
	nodes := make([]Node, len(in.Nodes))
	in.From = windows[0].Epoch
	for n, window := range windows {
		first := made[window]
		if first == nil {
			var err error
			if first, err = p.First(in, window); err != nil {
				return in, err
			}
			made[window] = first
		}
		nodes[n] = in.Nodes[n]
		nodes[n].Held = first.Nodes[n].Classes
	}
	for _, window := range windows {
		in.From = min(in.From, window.Epoch)
	}
	in.Nodes = nodes
	return in, nil
}
