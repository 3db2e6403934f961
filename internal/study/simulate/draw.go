package simulate

import (
	"math/rand/v2"

	"github.com/hdmlp/hdmlp/internal/plan/access"
)

// The second seed words of the PCGs that draw from a Job's seed, one per purpose, so that drawing
// more for one purpose does not change another. Package access draws the permutations.
const (
	drawOfSizes   = 0x73697a6573   // DrawSizes
	drawOfRewrite = 0x747261636573 // the profile Thesis, policies that rewrite the traces
)

// DrawOrder returns the permutation of every epoch of n samples, for Job.Order: several runs can
// then share them.
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
// The result is a pure function of the arguments: successive normal deviates of a PCG seeded with
// seed. A size that is still below min after maxRedraws draws becomes min.
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

// maxRedraws bounds the draws of one size. That many are needed where min is about four sigmas
// above mu.
const maxRedraws = 10000
