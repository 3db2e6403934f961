package builder

import (
	"fmt"
	"slices"

	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
)

// readable returns the samples that the stream may read, by ID.
func (b *Builder) readable() []int32 {
	ids := make([]int32, 0, len(b.head))
	for k := range b.head {
		if b.in.Stream.Has(k) {
			ids = append(ids, int32(k))
		}
	}
	return ids
}

// parts splits the samples that the stream may read into one contiguous part per node, of sizes
// that differ by at most 1.
func (b *Builder) parts() [][]int32 {
	ids, parts := b.readable(), make([][]int32, len(b.in.Nodes))
	for n := range parts {
		parts[n] = ids[len(ids)*n/len(parts) : len(ids)*(n+1)/len(parts)]
	}
	return parts
}

// PartsFit reports whether each node's contiguous part fits into the first classes of its node.
func (b *Builder) PartsFit(classes int) bool {
	for n, part := range b.parts() {
		var size, room int64
		for _, k := range part {
			size += b.in.Size(int(k))
		}
		for _, r := range b.in.Nodes[n].Capacity[:min(classes, len(b.room[n]))] {
			room += r
		}
		if size > room {
			return false
		}
	}
	return true
}

// hold adds a copy of k in the node's first `classes` classes, unless the node has one, and makes
// the node the owner of k if it has none. It reports whether the node has a copy.
func (b *Builder) hold(node, classes int, k int32) bool {
	if !b.has(node, k) {
		return b.keep(node, classes, k, unknown)
	}
	if b.owner[k] < 0 {
		b.owner[k] = int32(node)
	}
	return true
}

// KeepParts assigns to each node as much of its contiguous part as fits into its first `classes`
// classes.
func (b *Builder) KeepParts(classes int) {
	b.expect(len(b.head))
	for n, part := range b.parts() {
		for _, k := range part {
			b.hold(n, classes, k)
		}
	}
}

// KeepOwn assigns to each node as many samples as fit of those that owner says are its own.
func (b *Builder) KeepOwn(classes int, owner func(k int32) int) {
	b.expect(len(b.head))
	for _, k := range b.readable() {
		b.hold(owner(k), classes, k)
	}
}

// KeepRuns assigns to each node as many samples as fit, starting where the previous node stopped.
func (b *Builder) KeepRuns(classes int) {
	b.expect(len(b.head))
	ids := b.readable()
	for n := range b.in.Nodes {
		for len(ids) > 0 && b.hold(n, classes, ids[0]) {
			ids = ids[1:]
		}
	}
}

// KeepRest assigns samples that no node has to the nodes in order, each as many as fit.
func (b *Builder) KeepRest(classes int) {
	n := 0
	for _, k := range b.readable() {
		for tries := 0; b.owner[k] < 0 && tries < len(b.in.Nodes); tries++ {
			if !b.hold(n, classes, k) {
				n = (n + 1) % len(b.in.Nodes)
			}
		}
	}
}

// FinishPreload returns the plan of a policy that loads samples before training, in the order of
// their IDs. Nodes own what they already hold and no other node was given.
func (b *Builder) FinishPreload(policy string) *plan.Plan {
	b.OwnHeld()
	p := b.FinishInOrder(policy, true)
	for _, node := range p.Nodes {
		for _, ids := range node.Classes {
			slices.Sort(ids)
		}
	}
	p.Preload, p.CacheFirst = true, true
	return p
}

// NeedClasses returns an error if a node has no capacity in its first `classes` classes.
func NeedClasses(policy string, in *plan.Input, classes int) error {
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
	}
	return nil
}

// NeedDrawn returns an error if the policy cannot put the stream into an order of its own, or, if
// keeps is set, into one with the same global batches.
func NeedDrawn(policy string, in *plan.Input, keeps bool) error {
	spec, why := in.Stream.Spec(), ""
	switch {
	case in.Given():
		why = "torch's sampler draws the order; it supports only orders that are drawn from a seed: " +
			"give seed= or shard=True with shuffle=True"
	case keeps:
	case spec.Subset != nil:
		why = "it draws the order from the whole dataset, and a part of it is to be read"
	case spec.Mixture != nil:
		why = "it draws the order from one dataset, and several are to be mixed"
	case spec.Shuffle == access.Sequential:
		why = "it draws an order of its own, and samples are to be read without a shuffle"
	case spec.Scheme == access.Whole:
		why = "ranks read samples of their own, and every rank is to read every sample"
	}
	if why == "" {
		return nil
	}
	return &plan.Unsupported{Policy: policy, Reason: why}
}

// Owned returns the samples that have an owner, by ID.
func (b *Builder) Owned() (ids []int32) {
	for k, owner := range b.owner {
		if owner >= 0 {
			ids = append(ids, int32(k))
		}
	}
	return ids
}

// Held returns the samples that the node has, by ID.
func (b *Builder) Held(node int) (ids []int32) {
	for i := range b.copies {
		if c := &b.copies[i]; int(c.node) == node && c.class != noClass {
			ids = append(ids, c.k)
		}
	}
	slices.Sort(ids)
	return ids
}
