package replan

import (
	"math"
	"slices"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
)

// holding is what nodes hold if they follow a plan: its copies, as far as they fit into the
// capacities of the input, and what nodes keep besides (plan.Node.Kept), which counts as held
// by the node's slowest class.
//
// It takes 4 bytes per sample and 12 per copy. The copies of a sample are a linked list.
type holding struct {
	in     *plan.Input
	plan   *plan.Plan
	nodeOf []int32 // of every rank
	head   []int32 // per sample its first copy, or none
	copies []copyOf
}

// copyOf is a copy of a sample on a node.
type copyOf struct {
	k     int32
	next  int32 // the sample's next copy, or none
	node  uint16
	class uint8 // from 0
}

const (
	none = -1
	// mostClasses is how many classes of a node are looked at.
	mostClasses = 255
)

func newHolding(in *plan.Input, plan *plan.Plan) (*holding, error) {
	_, nodeOf, err := in.Check()
	if err != nil {
		return nil, err
	}
	samples := in.Stream.Spec().Samples
	most := 0
	for n, node := range in.Nodes {
		most += len(node.Kept)
		for _, ids := range plan.Nodes[n].Classes {
			most += len(ids)
		}
	}
	h := &holding{
		in: in, plan: plan, nodeOf: nodeOf,
		head:   slices.Repeat([]int32{none}, samples),
		copies: make([]copyOf, 0, most),
	}
	add := func(n, j int, k int32) {
		h.copies = append(h.copies, copyOf{k, h.head[k], uint16(n), uint8(j)})
		h.head[k] = int32(len(h.copies) - 1)
	}
	for n, node := range in.Nodes {
		classes := plan.Nodes[n].Classes[:min(len(plan.Nodes[n].Classes), len(node.Capacity),
			mostClasses)]
		for j, ids := range classes {
			room := node.Capacity[j]
			for _, k := range ids {
				if size := in.Size(int(k)); size <= room {
					room -= size
					add(n, j, k)
				}
			}
		}
		for _, k := range node.Kept {
			if h.class(n, k) == none && len(node.Capacity) > 0 {
				add(n, min(len(node.Capacity), mostClasses)-1, k)
			}
		}
	}
	return h, nil
}

// class returns the class in which a node holds a sample, or none.
func (h *holding) class(node int, k int32) int {
	for at := h.head[k]; at >= 0; at = h.copies[at].next {
		if c := &h.copies[at]; int(c.node) == node {
			return int(c.class)
		}
	}
	return none
}

// complete reports whether a plan that leaves everything where it is could not be another one: no
// class could hold another sample, and the owner of each sample that any node holds has it.
func (h *holding) complete() bool { return h.owned() && !h.hasRoom() }

// owned reports whether the owner of each sample that any node holds has it.
func (h *holding) owned() bool {
	for k := range int32(len(h.head)) {
		if h.plan.Remote && h.head[k] != none {
			if owner := h.owner(k); owner == none || h.class(owner, k) == none {
				return false
			}
		}
	}
	return true
}

// hasRoom reports whether a class could hold another sample.
func (h *holding) hasRoom() bool {
	least := int64(math.MaxInt64)
	for k := range h.head {
		least = min(least, h.in.Size(k))
	}
	for _, classes := range h.room() {
		for _, left := range classes {
			if left >= least {
				return true
			}
		}
	}
	return false
}

// free returns how many MB classes could hold more.
func (h *holding) free() (mb float64) {
	for _, classes := range h.room() {
		for _, left := range classes {
			mb += float64(max(left, 0)) / 1e6
		}
	}
	return mb
}

// room returns how many bytes the classes of each node could hold more.
func (h *holding) room() [][]int64 {
	room := make([][]int64, len(h.in.Nodes))
	for n, node := range h.in.Nodes {
		room[n] = slices.Clone(node.Capacity)
	}
	for i := range h.copies {
		c := &h.copies[i]
		room[c.node][c.class] -= h.in.Size(int(c.k))
	}
	return room
}

// owner returns the node that others read a sample from, or none.
func (h *holding) owner(k int32) int {
	if !h.plan.Remote {
		return none
	}
	return h.plan.OwnerOf(int(k))
}

// served is what a node reads in an epoch, in MB: all of it, and the part that classes hold.
type served struct {
	reads float64
	model.Hits
}

// served looks at this many of the epochs to come, evenly spaced, and at more as long as they have
// fewer reads together than that: the more samples there are, the less do epochs differ.
const (
	fewEpochs = 4
	fewReads  = 1 << 20
)

// looked returns at how many epochs of [from, to) is looked.
func looked(in *plan.Input, from, to int) int {
	return min(to-from, max(fewEpochs, fewReads/max(in.Stream.Delivered(), 1)))
}

// served returns what each node reads in a mean epoch of [from, to). A sample is found in an own
// class, or in one of its owner's.
func (h *holding) served(from, to int) ([]served, error) {
	in, spec := h.in, h.in.Stream.Spec()
	epochs := looked(in, from, to)
	var ranks []int // whose reads count; nil: all
	if spec.Scheme == access.Whole || len(in.Nodes) == 1 {
		epochs = 1 // all are alike
	}
	if spec.Scheme == access.Whole {
		for _, n := range in.Nodes { // all ranks of a node are alike as well
			ranks = append(ranks, n.Ranks[:min(len(n.Ranks), 1)]...)
		}
	}
	all := make([]served, len(in.Nodes))
	for n := range all {
		classes := len(in.Env.Classes) - 1
		all[n].Own, all[n].All = make([]float64, classes), make([]float64, classes)
	}
	var view *access.Epoch
	for i := range epochs {
		if err := in.Ended(); err != nil {
			return nil, err
		}
		view = in.Stream.EpochInto(view, from+i*(to-from)/epochs)
		for rank, k := range view.Reads(ranks...) {
			n := int(h.nodeOf[rank])
			mb := float64(in.Size(int(k))) / 1e6 / float64(epochs)
			if ranks != nil {
				mb *= float64(len(in.Nodes[n].Ranks))
			}
			all[n].add(mb, h.class(n, k), h.class(h.owner(k), k))
		}
	}
	return all, nil
}

// add adds a read of a sample that an own class and one of its owner's may hold.
func (s *served) add(mb float64, own, owners int) {
	own, owners = s.known(own), s.known(owners)
	s.reads += mb
	if own != none {
		s.Own[own] += mb
		s.All[own] += mb
	}
	if owners != none && owners != own {
		s.All[owners] += mb
	}
	if own != none || owners != none {
		s.Cached += mb
	}
}

// known returns none instead of a class of which nothing is known.
func (s *served) known(class int) int {
	if class >= len(s.Own) {
		return none
	}
	return class
}

// move returns what must be moved until the nodes hold this, if they hold from now: the bytes that
// classes are to hold and do not, and how many seconds it takes at least to bring them, if all
// nodes and all tiers work at the same time. A node brings a sample from another class of its own,
// or else from the owner, if that is another node and holds it, or else from the source.
func (h *holding) move(from *holding) (bytes int64, seconds float64) {
	e, classes := h.in.Env, len(h.in.Env.Classes)-1
	source := e.NodeSourceRate(len(h.in.Nodes), h.in.MeanSize())
	const (
		sources = 0
		peers   = 1
		first   = 2
	) // indices of tiers; classes follow
	busy := make([]float64, (first+classes)*len(h.in.Nodes)) // seconds, by node and tier
	for i := range h.copies {
		c := &h.copies[i]
		n, j := int(c.node), int(c.class)
		was := from.class(n, c.k)
		if was == j || j >= classes {
			continue
		}
		size := h.in.Size(int(c.k))
		bytes += size
		mb, tiers := float64(size)/1e6, busy[n*(first+classes):]
		class := &e.Classes[j+1]
		tiers[first+j] += mb / class.Write.At(float64(class.Threads))
		switch owner := h.owner(c.k); {
		case was != none && was < classes:
			tiers[first+was] += mb / e.NodeRate(was+1)
		case owner != n && from.class(owner, c.k) != none:
			tiers[peers] += mb / e.PeerBandwidth
		default:
			tiers[sources] += mb / source
		}
	}
	return bytes, slices.Max(append(busy, 0))
}
