package judge

import (
	"fmt"
	"slices"

	"github.com/hdmlp/hdmlp/internal/lab/clustersim/script"
)

// golden is the golden ratio's part after the point, times 2^32.
const golden = 0x9e3779b9

// inOrder returns the order of a mix that is not shuffled. In each epoch the border between the
// shares of its datasets is rounded by multiples of the golden ratio; their samples are spread
// evenly, and datasets are gone through in order, over the ends of epochs.
func inOrder(s *script.Script) Order {
	sizes, weights := s.MixSizes(), script.MixWeights
	all := weights[0] + weights[1]
	firstOf := func(epoch int) int {
		added := all * int(uint32(epoch)*golden) >> 32
		return (weights[0]*s.Mix + added) / all
	}
	return func(epoch int) (order []int) {
		var taken [2]int
		for e := range epoch {
			taken[0] += firstOf(e)
			taken[1] += s.Mix - firstOf(e)
		}
		counts := [2]int{firstOf(epoch), s.Mix - firstOf(epoch)}
		for i, j := 0, 0; i+j < s.Mix; {
			// The i-th of n comes at (2i+1)/2n of the epoch.
			if j == counts[1] || i < counts[0] && (2*i+1)*counts[1] <= (2*j+1)*counts[0] {
				order = append(order, (taken[0]+i)%sizes[0])
				i++
			} else {
				order = append(order, sizes[0]+(taken[1]+j)%sizes[1])
				j++
			}
		}
		return order
	}
}

// mixed returns what is wrong with the epochs of a mix: of each dataset its share, rounded, and
// each of its samples once before any comes again.
func mixed(s *script.Script, recorded Order) (wrong []string) {
	sizes, weights := s.MixSizes(), script.MixWeights
	seen := make([]int, s.Samples)
	for e := range s.Epochs {
		var count [2]int
		order := recorded(e)
		for _, id := range order {
			dataset, others := 0, seen[:sizes[0]]
			if id >= sizes[0] {
				dataset, others = 1, seen[sizes[0]:]
			}
			if seen[id] > slices.Min(others) {
				wrong = append(wrong, fmt.Sprintf("in epoch %d sample %d of a mix comes again before all "+
					"of its dataset have come", e, id))
			}
			seen[id]++
			count[dataset]++
		}
		least := weights[0] * s.Mix / (weights[0] + weights[1])
		if len(order) != s.Mix || count[0] != least && count[0] != least+1 {
			wrong = append(wrong, fmt.Sprintf("epoch %d of a mix has %d and %d samples of its datasets",
				e, count[0], count[1]))
		}
	}
	return wrong
}
