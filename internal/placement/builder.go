package placement

import (
	"math"
	"slices"

	"github.com/hdmlp/hdmlp/internal/access"
)

// builder collects copies, and finally puts them in the order of filling.
//
// Copies hang in one list per sample: memory follows what is planned, whatever the number of nodes.
type builder struct {
	in     *Input
	to     int     // the horizon is epochs [in.From, to)
	nodeOf []int32 // of every rank
	room   [][]int64
	head   []int32 // per sample its first copy; -1: none
	copies []copyOf
	owner  []int32 // per sample; -1: nobody
	least  int64   // bytes of the smallest sample

	times   [3]float64 // seconds per MB from the source, a peer, the node's own class 1, once perMB has asked
	removed int        // of copies, those that hang in no list any more
}

// copyOf is a copy of a sample on a node.
type copyOf struct {
	node  uint16
	class uint8
	next  int32 // the sample's next copy; -1: none
}

// maxClasses is what copyOf.class can count.
const maxClasses = math.MaxUint8

// newBuilder checks the input, and takes over what classes hold already, as far
// as their capacities go.
func newBuilder(in *Input) (*builder, error) {
	to, nodeOf, err := in.check()
	if err != nil {
		return nil, err
	}
	f := in.Stream.Spec().Samples
	b := &builder{in: in, to: to, nodeOf: nodeOf, head: make([]int32, f), owner: make([]int32, f), least: math.MaxInt64}
	for k := range f {
		b.head[k], b.owner[k] = -1, -1
		b.least = min(b.least, in.Size(k))
	}
	for n, node := range in.Nodes {
		b.room = append(b.room, slices.Clone(node.Capacity[:min(maxClasses, len(node.Capacity))]))
		for j, held := range node.Held {
			for _, k := range held {
				if s := in.Size(int(k)); s <= b.room[n][j] && !b.has(n, k) {
					b.add(n, j, k, s)
				}
			}
		}
	}
	return b, nil
}

// has tells whether the node holds the sample.
func (b *builder) has(node int, k int32) bool {
	for c := b.head[k]; c >= 0; c = b.copies[c].next {
		if int(b.copies[c].node) == node {
			return true
		}
	}
	return false
}

func (b *builder) add(node, class int, k int32, size int64) {
	b.room[node][class] -= size
	b.copies = append(b.copies, copyOf{node: uint16(node), class: uint8(class), next: b.head[k]})
	b.head[k] = int32(len(b.copies) - 1)
}

// put gives the node a copy, in the first of its classes, from class `first` on, that has room for it.
func (b *builder) put(node, first int, k int32) bool {
	size := b.in.Size(int(k))
	for j := first; j < len(b.room[node]); j++ {
		if size <= b.room[node][j] {
			b.add(node, j, k, size)
			return true
		}
	}
	return false
}

// largest returns the most room that a class of the node has.
func (b *builder) largest(node int) int64 {
	var most int64
	for _, r := range b.room[node] {
		most = max(most, r)
	}
	return most
}

// allFull tells whether every node is full.
func (b *builder) allFull() bool {
	for n := range b.room {
		if !b.full(n) {
			return false
		}
	}
	return true
}

// full tells whether no sample at all could fit on the node any more.
func (b *builder) full(node int) bool { return b.largest(node) < b.least }

// finish makes the plan, and uses the builder up. Each class is filled in the order in which its samples are first
// needed (thesis 3.2.2, rule 1): by the node itself, or, if shared and the node is the sample's owner, by anyone.
func (b *builder) finish(policy string, remote, shared bool) *Plan {
	p := &Plan{Policy: policy, Prefetch: true, Remote: remote, Nodes: make([]NodePlan, len(b.in.Nodes))}
	for n := range p.Nodes {
		p.Nodes[n].Classes = make([][]int32, len(b.in.Nodes[n].Capacity))
	}
	// Copies leave their sample's list as they find their place, so that later epochs pass quickly over it.
	left := len(b.copies) - b.removed
	take := func(k int32, wanted func(*copyOf) bool) {
		for at := &b.head[k]; *at >= 0; {
			c := &b.copies[*at]
			if !wanted(c) {
				at = &c.next
				continue
			}
			class := &p.Nodes[c.node].Classes[c.class]
			*class = append(*class, k)
			*at = c.next
			left--
		}
	}

	for n, node := range b.in.Nodes {
		for j, held := range node.Held {
			for _, k := range held {
				take(k, func(c *copyOf) bool { return int(c.node) == n && int(c.class) == j })
			}
		}
	}
	var epoch *access.Epoch
	for e := b.in.From; e < b.to && left > 0; e++ {
		epoch = b.in.Stream.EpochInto(epoch, e)
		for rank, k := range epoch.Reads() {
			if b.head[k] < 0 {
				continue
			}
			node, owner := b.nodeOf[rank], b.owner[k]
			take(k, func(c *copyOf) bool { return int32(c.node) == node || shared && int32(c.node) == owner })
			if left == 0 {
				break
			}
		}
	}
	for k := range b.head {
		take(int32(k), func(*copyOf) bool { return true })
	}
	if remote {
		p.Owner = b.owner
	}
	return p
}
