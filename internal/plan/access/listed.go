package access

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
)

// NewListed is New for a stream with given permutations: orders[e] is that of epoch e, and after
// the last one they start again. It ignores Shuffle and Seed of the spec. Each order must have
// every sample once, and must not change while the stream is in use.
func NewListed(spec Spec, orders [][]int32) (*Stream, error) {
	if len(orders) == 0 {
		return nil, fmt.Errorf("access: no orders; there must be one for at least one epoch")
	}
	if spec.Subset != nil {
		return nil, fmt.Errorf("access: orders are of all samples; Subset must be nil")
	}
	spec.Shuffle = Torch // a materialised permutation
	s, err := New(spec)
	if err != nil {
		return nil, err
	}
	seen := make([]uint64, spec.Samples/64+1) // a bit per sample
	for e, order := range orders {
		if len(order) != spec.Samples {
			return nil, fmt.Errorf("access: the order of epoch %d has %d entries; it must have "+
				"one per sample, %d", e, len(order), spec.Samples)
		}
		clear(seen)
		for p, k := range order {
			if k < 0 || int(k) >= spec.Samples || seen[k/64]>>(k%64)&1 != 0 {
				return nil, fmt.Errorf("access: the order of epoch %d has sample %d at position "+
					"%d; allowed: each of 0 to %d, once", e, k, p, spec.Samples-1)
			}
			seen[k/64] |= 1 << (k % 64)
		}
	}
	s.listed, s.again = orders, true
	return s, nil
}

// Orders draws the permutations of the stream's first epochs on all cores, 4 bytes per position and
// epoch. Pass them to NewListed to iterate over them many times, or to share them among several
// streams of the same samples.
func (s *Stream) Orders(epochs int) [][]int32 {
	orders := make([][]int32, epochs)
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(epochs, runtime.GOMAXPROCS(0)) {
		all.Go(func() {
			for e := int(next.Add(1)) - 1; e < epochs; e = int(next.Add(1)) - 1 {
				order := make([]int32, 0, s.n)
				epoch := s.Epoch(e)
				for p := range s.n {
					order = append(order, epoch.sample(p))
				}
				orders[e] = order
			}
		})
	}
	all.Wait()
	return orders
}
