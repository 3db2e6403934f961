package order

import (
	"github.com/hdmlp/hdmlp/internal/plan"
)

// Reorder puts the epochs into the order in which ranks read under the policy. nodes have the
// configured capacities of their storage classes. It must be called before anything else reads the
// stream.
func (o *Order) Reorder(p plan.Policy, nodes []plan.Node) error {
	in, err := plan.Ordered(p, plan.Input{
		Stream: o.stream, From: o.First(), Epochs: o.First() + 1, Nodes: nodes,
		// An empty file takes no capacity, but policies must not divide by 0.
		Size: func(id int) int64 { return max(o.index.Size(id), 1) },
	})
	if err != nil {
		return err
	}
	o.stream, o.configured = in.Stream, nodes
	return nil
}

// Configured returns the capacities from which the policy's order is made, by node and class, in
// bytes; -1: none is configured.
func (o *Order) Configured() [][]int64 {
	all := make([][]int64, len(o.configured))
	for n, node := range o.configured {
		all[n] = make([]int64, len(node.Capacity))
		for j, capacity := range node.Capacity {
			if all[n][j] = capacity; capacity >= plan.Unlimited {
				all[n][j] = -1
			}
		}
	}
	return all
}

// Reordered describes the order into which a policy has put the epochs; "": it is the stream's own,
// or has the same global batches.
func (o *Order) Reordered() string {
	if order := o.stream.Order(); order != nil && order.Draw != nil {
		return order.Name
	}
	return ""
}
