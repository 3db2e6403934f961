package reorder

import (
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
)

// Parts are the parts of a dataset that nodes own, in name: equal parts of its samples in a random
// order that the seed defines, so that a node's part is no class of a dataset that is sorted by
// classes.
type Parts struct {
	of    []uint16 // per sample
	nodes int
}

// partsKey makes the order of parts another one than that of an epoch.
const partsKey = 0x6c6f63616c697479

// PartsOf returns the parts of the nodes.
func PartsOf(in *plan.Input) *Parts {
	spec := in.Stream.Spec()
	p := &Parts{make([]uint16, spec.Samples), len(in.Nodes)}
	s, err := access.New(access.Spec{
		Samples: spec.Samples, Seed: spec.Seed ^ partsKey, WorldSize: 1, GlobalBatch: spec.Samples,
		Shuffle: access.Feistel,
	})
	if err != nil {
		panic("reorder: " + err.Error()) // the Spec of a stream is valid
	}
	order := s.Epoch(0)
	for at := range spec.Samples {
		p.of[order.At(0, at)] = uint16(at * p.nodes / spec.Samples)
	}
	return p
}

// Owner returns the node of whose part the sample is.
func (p *Parts) Owner(id int32) int { return int(p.of[id]) }

// Copy returns the node that owns copy c of the sample, from 0: the next node by number owns the
// next copy. There are at most as many copies as nodes.
func (p *Parts) Copy(id int32, c int) int { return (p.Owner(id) + c) % p.nodes }

// Regrouped returns the order that deals the samples of each global batch to nodes that own them
// (Yang and Cong, section 2): a node takes samples of its part, in the batch's order, up to its
// share of the batch; then of those that are left whose second copy it owns, and so on for all
// copies; what is left then goes, in order, to the nodes that have too few, by number.
func Regrouped(in *plan.Input, policy string, parts *Parts, copies int) access.Order {
	places := placesOf(in)
	return access.Order{Name: policy, Deal: func(of *access.Epoch) []int32 {
		moved := make([]int32, in.Stream.Delivered())
		var batch, left []int32
		next := make([]int, len(in.Nodes)) // how many samples each node has of the batch
		for step := range places.Steps() {
			batch = of.Global(batch[:0], step)
			base, at := places.Base(step), places.At(step)
			left = left[:0]
			for i := range batch {
				left = append(left, int32(i))
			}
			clear(next)
			give := func(n int, i int32) bool {
				if next[n] == len(at[n]) {
					return false
				}
				moved[base+int(at[n][next[n]])] = int32(base) + i
				next[n]++
				return true
			}
			for c := range copies {
				rest := left[:0]
				for _, i := range left {
					if !give(parts.Copy(batch[i], c), i) {
						rest = append(rest, i)
					}
				}
				left = rest
			}
			n := 0
			for _, i := range left {
				for !give(n, i) {
					n++
				}
			}
		}
		return moved
	}}
}
