package placement

import (
	"fmt"
	"slices"

	"github.com/hdmlp/hdmlp/internal/access"
)

// Perfect never waits: the lower bound of the runtime (thesis 4.1.4, PerfectPrefetcher).
type Perfect struct{}

// Name is "perfect".
func (Perfect) Name() string { return "perfect" }

// Plan plans nothing: whoever runs it finds every sample in the staging buffer.
func (p Perfect) Plan(in Input) (*Plan, error) { return nothing(p.Name(), true, in) }

// DeepIO keeps samples in RAM, class 1, which it fills before training, and nodes read from each other's (thesis 2.3,
// 4.1.4). If a node's share of the dataset fits, node i holds the i-th of N contiguous parts; otherwise, "hybrid", it
// starts with the sample at which the node before it stopped and holds as many as fit. In order, samples in nobody's
// RAM are read from the source when training asks for them.
type DeepIO struct {
	// Opportunistic: only samples in RAM are trained on. Every epoch is a full shuffle of these, repeated where they
	// are fewer than the epoch has positions; each position is as likely to be read from any node as that node's share of them.
	Opportunistic bool
}

// Name is "deepio_ordered" or "deepio_opportunistic".
func (d DeepIO) Name() string {
	if d.Opportunistic {
		return "deepio_opportunistic"
	}
	return "deepio_ordered"
}

// Plan places contiguous parts, and changes the order if opportunistic.
func (d DeepIO) Plan(in Input) (*Plan, error) {
	b, err := newBuilder(&in)
	if err != nil {
		return nil, err
	}
	if err := needClasses(d.Name(), &in, 1); err != nil {
		return nil, err
	}
	b.expect(len(b.head))
	if parts := contiguous(&in); b.partsFit(parts, 1) {
		for n := range parts {
			for k := parts[n].from; k < parts[n].to; k++ {
				b.keep(n, 1, k, unknown)
			}
		}
	} else {
		k := 0
		for n := range in.Nodes {
			for k < len(b.head) && b.keep(n, 1, int32(k), unknown) {
				k++
			}
		}
	}
	p := b.finishPreload(d.Name())
	p.Demand = true
	if d.Opportunistic {
		var held []int32
		for k, owner := range b.owner {
			if owner >= 0 {
				held = append(held, int32(k))
			}
		}
		if len(held) == 0 {
			return nil, &Unsupported{d.Name(), "no sample fits into class 1, and it trains on nothing else"}
		}
		p.Reorder, err = shuffled(&in, [][]int32{held})
	}
	return p, err
}

// LBANN is the distributed in-memory data store of LBANN (thesis 2.3, 4.1.4): the nodes' RAM, class 1, holds the
// dataset, and each reads from the others what it has not got. It refuses a dataset larger than that.
type LBANN struct {
	// Preloading: node i loads the i-th of N contiguous parts before training. Otherwise, "dynamic", a node keeps what it
	// reads in the first epoch.
	Preloading bool
}

// Name is "lbann_preloading" or "lbann_dynamic".
func (l LBANN) Name() string {
	if l.Preloading {
		return "lbann_preloading"
	}
	return "lbann_dynamic"
}

// Plan gives every sample one node.
func (l LBANN) Plan(in Input) (*Plan, error) {
	b, err := newBuilder(&in)
	if err != nil {
		return nil, err
	}
	if err := needClasses(l.Name(), &in, 1); err != nil {
		return nil, err
	}
	var size, room int64
	for k := range b.head {
		size += in.Size(k)
	}
	for n := range in.Nodes {
		room += in.Nodes[n].Capacity[0]
	}
	if size > room {
		return nil, &Unsupported{l.Name(), fmt.Sprintf("the dataset has %.0f MB and class 1 of the nodes together %.0f MB; it must hold the dataset", float64(size)/1e6, float64(room)/1e6)}
	}
	if l.Preloading {
		b.expect(len(b.head))
		for n, part := range contiguous(&in) {
			for k := part.from; k < part.to; k++ {
				b.keep(n, 1, k, unknown)
			}
		}
	} else {
		b.keepFirstEpoch(1)
	}
	// Sizes differ, so a share may exceed the mean: what is left goes where there is room.
	n := 0
	for k := range b.head {
		for tries := 0; b.owner[k] < 0 && tries < len(in.Nodes); tries++ {
			if !b.keep(n, 1, int32(k), unknown) {
				n = (n + 1) % len(in.Nodes)
			}
		}
	}
	if l.Preloading {
		return b.finishPreload(l.Name()), nil
	}
	p := b.finish(l.Name(), true, true)
	p.OnRead, p.ReadOnce, p.CacheFirst = true, true, true
	return p, nil
}

// Sharded stages disjoint contiguous shards on the nodes before training, as much of each as fits into all classes; a
// node trains on its shard alone, in a new order in each epoch (Kurth et al.; thesis 2.3, parallel data staging).
type Sharded struct{}

// Name is "sharded".
func (Sharded) Name() string { return "sharded" }

// Plan stages the shards and changes the order.
func (s Sharded) Plan(in Input) (*Plan, error) {
	b, err := newBuilder(&in)
	if err != nil {
		return nil, err
	}
	if err := needClasses(s.Name(), &in, noClass); err != nil {
		return nil, err
	}
	held := b.keepParts()
	for n := range held {
		if len(held[n]) == 0 {
			return nil, &Unsupported{s.Name(), fmt.Sprintf("no sample of its shard fits on node %d, and it trains on nothing else", n)}
		}
	}
	p := b.finishPreload(s.Name())
	p.Remote, p.Owner = false, nil
	p.Reorder, err = shuffled(&in, held)
	return p, err
}

// Locality partitions the dataset over the nodes' caches, filled before training, and deals each global batch out
// anew, so that nodes mostly read what they hold: first every node takes what it holds, up to its share of the batch, then the
// surplus and what nobody holds go to those that have too little (Yang and Cong, Accelerating Data Loading in Deep Neural
// Network Training, section 2). The samples of a global batch stay the same, and so does the training.
type Locality struct{}

// Name is "locality".
func (Locality) Name() string { return "locality" }

// Plan partitions the dataset and changes the order within global batches.
func (l Locality) Plan(in Input) (*Plan, error) {
	b, err := newBuilder(&in)
	if err != nil {
		return nil, err
	}
	if err := needClasses(l.Name(), &in, noClass); err != nil {
		return nil, err
	}
	b.keepParts()
	p := b.finishPreload(l.Name())
	if in.Stream.Spec().Scheme != access.Whole { // there, everybody reads everything anyway
		p.Reorder = regrouped(&in, b.owner)
	}
	return p, nil
}

// needClasses refuses nodes that have no room in their first `classes` classes, or several ranks, and streams that are not
// over the whole dataset.
func needClasses(policy string, in *Input, classes int) error {
	if isGiven(in.Stream) || in.Stream.Spec().Subset != nil {
		return &Unsupported{policy, "it runs with orders of the whole dataset that are drawn from a seed"}
	}
	for n, node := range in.Nodes {
		var room int64
		for j, c := range node.Capacity {
			if j < classes {
				room += c
			}
		}
		if len(node.Capacity) == 0 || room == 0 {
			return &Unsupported{policy, fmt.Sprintf("node %d has no storage class with room to cache anything", n)}
		}
		if !slices.Equal(node.Ranks, []int{n}) {
			return &Unsupported{policy, fmt.Sprintf("node %d has ranks %v; it runs with rank n alone on node n", n, node.Ranks)}
		}
	}
	return nil
}

// part is the samples [from, to).
type part struct{ from, to int32 }

// contiguous cuts the dataset into one part per node, as equal as can be.
func contiguous(in *Input) []part {
	f, parts := in.Stream.Spec().Samples, make([]part, len(in.Nodes))
	for n := range parts {
		parts[n] = part{int32(f * n / len(parts)), int32(f * (n + 1) / len(parts))}
	}
	return parts
}

// partsFit tells whether each part fits into the first classes of its node.
func (b *builder) partsFit(parts []part, classes int) bool {
	for n, p := range parts {
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

// keep gives the node the first copy of k, in the first of its first `classes` classes that has room, or says that none has.
func (b *builder) keep(node, classes int, k, first int32) bool {
	size := b.in.Size(int(k))
	for j := range b.room[node][:min(classes, len(b.room[node]))] {
		if size <= b.room[node][j] {
			b.add(node, j, k, size, first)
			if b.owner[k] < 0 {
				b.owner[k] = int32(node)
			}
			return true
		}
	}
	return false
}

// keepParts gives every node as much of its contiguous part as fits, and returns what each got.
func (b *builder) keepParts() [][]int32 {
	b.expect(len(b.head))
	held := make([][]int32, len(b.in.Nodes))
	for n, part := range contiguous(b.in) {
		for k := part.from; k < part.to && !b.fullUp(n); k++ {
			if b.keep(n, noClass, k, unknown) {
				held[n] = append(held[n], k)
			}
		}
	}
	return held
}

// keepFirstEpoch gives every node what it reads first in the first epoch, as far as it fits.
func (b *builder) keepFirstEpoch(classes int) {
	b.expect(len(b.head))
	for ids, nodes := range b.steps(b.in.Stream.Epoch(b.in.From)) {
		for i, k := range ids {
			readers := b.nodeOf // all of them
			if nodes != nil {
				readers = []int32{int32(nodes[i])}
			}
			for _, node := range readers {
				if b.owner[k] < 0 {
					b.keep(int(node), classes, k, 0)
				}
			}
		}
	}
}

// finishPreload makes the plan of a policy that loads samples before training, in the order of their ID.
func (b *builder) finishPreload(policy string) *Plan {
	p := b.finishInOrder(policy, true)
	for _, node := range p.Nodes {
		for _, ids := range node.Classes {
			slices.Sort(ids)
		}
	}
	p.Preload, p.CacheFirst = true, true
	return p
}
