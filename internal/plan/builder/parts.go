package builder

import (
	"fmt"
	"slices"

	"github.com/hdmlp/hdmlp/internal/plan"
)

// part is the range [from, to) of samples.
type part struct{ from, to int32 }

// contiguous splits the dataset into one part per node, of sizes that differ by at most 1.
func contiguous(in *plan.Input) []part {
	f, parts := in.Stream.Spec().Samples, make([]part, len(in.Nodes))
	for n := range parts {
		parts[n] = part{int32(f * n / len(parts)), int32(f * (n + 1) / len(parts))}
	}
	return parts
}

// PartsFit reports whether each node's contiguous part fits into the first classes of its node.
func (b *Builder) PartsFit(classes int) bool {
	for n, p := range contiguous(b.in) {
		var size, room int64
		for k := p.from; k < p.to; k++ {
			size += b.in.Size(int(k))
		}
		for _, r := range b.room[n][:min(classes, len(b.room[n]))] {
			room += r
		}
		if size > room {
			return false
		}
	}
	return true
}

// KeepParts assigns to each node as much of its contiguous part as fits into its first `classes`
// classes.
func (b *Builder) KeepParts(classes int) {
	b.expect(len(b.head))
	for n, part := range contiguous(b.in) {
		for k := part.from; k < part.to && !b.fullUp(n); k++ {
			b.keep(n, classes, k, unknown)
		}
	}
}

// KeepRuns assigns to each node as many samples as fit, starting where the previous node stopped.
func (b *Builder) KeepRuns(classes int) {
	b.expect(len(b.head))
	k := 0
	for n := range b.in.Nodes {
		for k < len(b.head) && b.keep(n, classes, int32(k), unknown) {
			k++
		}
	}
}

// KeepRest assigns samples that no node has to the nodes in order, each as many as fit.
func (b *Builder) KeepRest(classes int) {
	n := 0
	for k := range b.head {
		for tries := 0; b.owner[k] < 0 && tries < len(b.in.Nodes); tries++ {
			if !b.keep(n, classes, int32(k), unknown) {
				n = (n + 1) % len(b.in.Nodes)
			}
		}
	}
}

// FinishPreload returns the plan of a policy that loads samples before training, in the order of
// their IDs.
func (b *Builder) FinishPreload(policy string) *plan.Plan {
	p := b.FinishInOrder(policy, true)
	for _, node := range p.Nodes {
		for _, ids := range node.Classes {
			slices.Sort(ids)
		}
	}
	return p
}

// NeedClasses returns an error if a node has no capacity in its first `classes` classes or several
// ranks, or if the stream is not over the whole dataset.
func NeedClasses(policy string, in *plan.Input, classes int) error {
	if in.Given() || in.Stream.Spec().Subset != nil {
		return &plan.Unsupported{
			Policy: policy,
			Reason: "it supports only orders of the whole dataset that are drawn from a seed",
		}
	}
	for n, node := range in.Nodes {
		var room int64
		for j, c := range node.Capacity {
			if j < classes {
				room += c
			}
		}
		if len(node.Capacity) == 0 || room == 0 {
			return &plan.Unsupported{
				Policy: policy,
				Reason: fmt.Sprintf("node %d has no storage class with capacity for samples", n),
			}
		}
		if !slices.Equal(node.Ranks, []int{n}) {
			return &plan.Unsupported{
				Policy: policy,
				Reason: fmt.Sprintf("node %d has ranks %v; it supports only rank n on node n", n,
					node.Ranks),
			}
		}
	}
	return nil
}
