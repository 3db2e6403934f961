package simulate

import (
	"math/rand/v2"

	"github.com/hdmlp/hdmlp/internal/access"
)

// What is drawn from a Job's seed besides the permutations, which are package access's, comes from
// a PCG whose second word is one of these, so that one draw never moves another.
const (
	drawOfSizes   = 0x73697a6573   // DrawSizes
	drawOfRewrite = 0x747261636573 // the profile Thesis, policies that rewrite the traces
)

// DrawOrder draws the permutation of every epoch of n samples: for Job.Order, to draw them once for
// several runs.
func DrawOrder(seed uint64, n, epochs int) ([][]int32, error) {
	stream, err := access.New(access.Spec{
		Samples:     n,
		Seed:        seed,
		Epochs:      epochs,
		WorldSize:   1,
		GlobalBatch: 1,
	})
	if err != nil {
		return nil, err
	}
	return stream.Orders(epochs), nil
}

// DrawSizes draws n sample sizes in MB from a normal distribution of mean mu and standard deviation
// sigma; every size below min is drawn again (simulator-semantics section 1, data set and traces).
// The draw is a pure function of its arguments: a PCG seeded with seed, one normal deviate after
// the other. Where the distribution hardly reaches min, which maxRedraws tells, a size is min
// itself.
func DrawSizes(seed uint64, n int, mu, sigma, min float64) []float64 {
	rng := rand.New(rand.NewPCG(seed, drawOfSizes))
	sizes := make([]float64, n)
	for k := range sizes {
		sizes[k] = mu + sigma*rng.NormFloat64()
		for try := 0; sizes[k] < min; try++ {
			if sigma == 0 || try == maxRedraws {
				sizes[k] = min
				break
			}
			sizes[k] = mu + sigma*rng.NormFloat64()
		}
	}
	return sizes
}

// maxRedraws bounds the draws of one size: it takes as many where min is some four sigmas above mu.
const maxRedraws = 10000
