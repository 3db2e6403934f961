package planner

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
)

// node returns this node's own description for the others, with its classes as given.
func (p *Planner) node(classes []Class) (node plan.Node) {
	for r := range p.o.Stream.Spec().WorldSize {
		node.Ranks = append(node.Ranks, r)
	}
	for _, c := range classes {
		held := c.Held
		if c.KeepsAll {
			node.Kept = append(node.Kept, held...) // faster classes may hold copies of them
			held = nil
		}
		node.Capacity = append(node.Capacity, c.Capacity)
		node.Held = append(node.Held, held)
	}
	node.Known = p.Known()
	return node
}

// input returns the policy's input from an epoch on, without what is known of the nodes.
func (p *Planner) input(from int, nodes []plan.Node) plan.Input {
	return plan.Input{
		Stream: p.o.Stream.Fixed(), Epochs: from + openEnd, From: from, Nodes: nodes,
		// An empty file takes no capacity, but policies must not divide by 0.
		Size: func(id int) int64 { return max(p.o.Size(id), 1) },
	}
}

// gather returns the policy's input, the nodes with their storage classes and what these hold, and
// what its environment is made of, or nil.
func (p *Planner) gather(ctx context.Context) (in plan.Input, agreed *model.Node,
	err error,
) {
	nodes := []plan.Node{p.node(p.o.Classes)}
	if p.o.Nodes != nil {
		if nodes, err = p.o.Nodes.Capacities(ctx, nodes[0]); err != nil {
			return in, nil, err
		}
	}
	in = p.input(p.o.First, nodes)
	agreed = in.Agree()
	return in, agreed, nil
}

// capacities returns nodes without what they hold.
func capacities(nodes []plan.Node) []plan.Node {
	out := slices.Clone(nodes)
	for i := range out {
		out[i].Held = nil
		out[i].Kept = nil
		out[i].Known = nil
	}
	return out
}

// Memory estimates how many bytes it takes to make a plan for this number of nodes.
func Memory(stream *access.Stream, first, nodes int) int64 {
	return policies.Memory(plan.Input{
		Stream: stream,
		From:   first,
		Epochs: first + openEnd,
		Nodes:  make([]plan.Node, nodes),
	})
}

// planTime estimates how long one core takes to make the plan.
func planTime(in plan.Input) time.Duration {
	const perSample, perRead = 300, 30 // ns
	epochs := cmp.Or(in.Stream.Spec().Epochs, in.Epochs)
	switch {
	case len(in.Nodes) == 1 && !in.Varies():
		epochs = 1
	case in.Stream.Spec().Shuffle == access.Given:
		epochs = len(in.Stream.GivenEpochs())
	}
	samples := float64(in.Stream.Spec().Samples)
	return time.Duration(samples * (perSample + perRead*float64(epochs)))
}
