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
	o.stream = in.Stream
	return nil
}

// Reordered describes the order into which a policy has put the epochs; "": it is the stream's own,
// or has the same global batches.
func (o *Order) Reordered() string {
	if order := o.stream.Order(); order != nil && order.Draw != nil {
		return order.Name
	}
	return ""
}
