package simulated

import (
	"fmt"
	"slices"

	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
)

// shares is the split of an epoch's global batches over the nodes: the offset of each node's part
// in a full batch and in the short last one. It has one entry more than there are nodes.
type shares struct {
	full, last  []int
	steps       int
	globalBatch int
}

func sharesOf(in *plan.Input) shares {
	s := shares{steps: in.Stream.Steps(), globalBatch: in.Stream.Spec().GlobalBatch}
	e := in.Stream.Epoch(in.From)
	starts := func(step int) []int {
		at := make([]int, len(in.Nodes)+1)
		for n, node := range in.Nodes {
			at[n+1] = at[n]
			for _, r := range node.Ranks {
				at[n+1] += len(e.Batch(nil, r, step))
			}
		}
		return at
	}
	s.full, s.last = starts(0), starts(s.steps-1)
	return s
}

// of returns the offsets of the parts of the batch at the step.
func (s *shares) of(step int) []int {
	if step < s.steps-1 {
		return s.full
	}
	return s.last
}

// read returns how many samples the node reads in the steps before step.
func (s *shares) read(node, step int) int { return step * (s.full[node+1] - s.full[node]) }

// Shuffled returns the orders of a policy that trains only on held samples: one list for all nodes
// together, or one per node. In each epoch a list is read in a new random order; if it is shorter
// than the epoch it is read again in another order, each time completely.
func Shuffled(in *plan.Input, held [][]int32) (func(int) Batches, error) {
	lists := &heldLists{shares: sharesOf(in), held: held}
	for n, list := range held {
		s, err := access.New(access.Spec{
			Samples:   len(list),
			Seed:      access.Mix(n, int(in.Stream.Spec().Seed&0xffffffff)) ^ in.Stream.Spec().Seed,
			WorldSize: 1, GlobalBatch: len(list), Shuffle: access.Feistel,
		})
		if err != nil {
			return nil, fmt.Errorf("placement: order of held samples: %w", err)
		}
		lists.streams = append(lists.streams, s)
	}
	return func(epoch int) Batches { return newHeldEpoch(lists, epoch) }, nil
}

type heldLists struct {
	shares
	held    [][]int32
	streams []*access.Stream
}

// heldEpoch is an epoch over held samples. A pass reads a list once.
type heldEpoch struct {
	*heldLists
	passes [][]*access.Epoch // per list
}

func newHeldEpoch(l *heldLists, epoch int) *heldEpoch {
	e := &heldEpoch{heldLists: l, passes: make([][]*access.Epoch, len(l.held))}
	for i, list := range l.held {
		var reads int // from this list in an epoch
		if len(l.held) == 1 {
			reads = (l.steps-1)*l.full[len(l.full)-1] + l.last[len(l.last)-1]
		} else {
			reads = l.read(i, l.steps-1) + l.last[i+1] - l.last[i]
		}
		passes := max(1, (reads+len(list)-1)/len(list))
		for p := range passes {
			e.passes[i] = append(e.passes[i], l.streams[i].Epoch(epoch*passes+p))
		}
	}
	return e
}

func (e *heldEpoch) Batch(dst []int32, node, step int) []int32 {
	at := e.of(step)
	i, from := node, e.read(node, step)
	if len(e.held) == 1 {
		i, from = 0, step*e.full[len(e.full)-1]+at[node]
	}
	list := e.held[i]
	pass, p := from/len(list), from%len(list)
	for range at[node+1] - at[node] {
		dst = append(dst, list[e.passes[i][pass].At(0, p)])
		if p++; p == len(list) {
			pass, p = pass+1, 0
		}
	}
	return dst
}

// Regrouped returns the orders of a policy that distributes the samples of a global batch to their
// owners.
func Regrouped(in *plan.Input, owner []int32) func(int) Batches {
	s, stream := sharesOf(in), in.Stream
	return func(epoch int) Batches {
		r := &regroupedEpoch{shares: s, ids: make([]int32, 0, stream.Delivered())}
		from := stream.Epoch(epoch)
		next := make([]int, len(in.Nodes)) // index for the node's next sample
		var batch, spare []int32
		for step := range s.steps {
			at := s.of(step)
			copy(next, at)
			batch, spare = from.Global(batch[:0], step), spare[:0]
			base := len(r.ids)
			r.ids = r.ids[:base+len(batch)]
			for _, k := range batch {
				if n := owner[k]; n >= 0 && next[n] < at[n+1] {
					r.ids[base+next[n]] = k
					next[n]++
				} else {
					spare = append(spare, k)
				}
			}
			n := 0
			for _, k := range spare {
				for next[n] == at[n+1] {
					n++
				}
				r.ids[base+next[n]] = k
				next[n]++
			}
		}
		return r
	}
}

// regroupedEpoch is an epoch whose global batches were redistributed, sorted by step, then by node.
type regroupedEpoch struct {
	shares
	ids []int32
}

func (e *regroupedEpoch) Batch(dst []int32, node, step int) []int32 {
	at, base := e.of(step), step*e.globalBatch
	return append(dst, e.ids[base+at[node]:base+at[node+1]]...)
}

// Sorted returns the orders of a policy by which each node reads what it reads in an epoch in the
// order of the samples' IDs.
func Sorted(in *plan.Input) func(int) Batches {
	s, stream := sharesOf(in), in.Stream
	return func(epoch int) Batches {
		e := &sortedEpoch{shares: s, nodes: make([][]int32, len(in.Nodes))}
		from := stream.Epoch(epoch)
		for n, node := range in.Nodes {
			for step := range s.steps {
				for _, r := range node.Ranks {
					e.nodes[n] = append(e.nodes[n], from.Batch(nil, r, step)...)
				}
			}
			slices.Sort(e.nodes[n])
		}
		return e
	}
}

// sortedEpoch is an epoch that each node reads in the order of the IDs.
type sortedEpoch struct {
	shares
	nodes [][]int32
}

func (e *sortedEpoch) Batch(dst []int32, node, step int) []int32 {
	at, begin := e.of(step), e.read(node, step)
	return append(dst, e.nodes[node][begin:begin+at[node+1]-at[node]]...)
}
