package simulate

import (
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/study/sizes"
)

// drawOfRewrite is the second seed word of the PCG of policies that rewrite the traces, in the
// profile Thesis, so that drawing more for another purpose does not change what it draws. Packages
// access and sizes draw the permutations and the sizes.
const drawOfRewrite = 0x747261636573

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
// sigma; every size below min is drawn again, as the thesis's simulator does.
// The result is a pure function of the arguments.
func DrawSizes(seed uint64, n int, mu, sigma, min float64) []float64 {
	d := sizes.Distribution{Kind: sizes.Normal, Mu: mu, Sigma: sigma, Min: min}
	return d.Draw(seed, n)
}
