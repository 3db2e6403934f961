// Package sizes draws the sizes of samples of datasets that do not exist from distributions with
// names (thesis 4.1.2, which has any object with a method rvs). Sizes, means and deviations are in
// MB.
//
// What is drawn is a pure function of the distribution and the seed. A
// Distribution must not be changed while it is used.
package sizes

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sort"
)

// Kind is the name of a distribution.
type Kind string

// The distributions. Mu and Sigma are the mean and the standard deviation of the sizes themselves,
// before Min and Max.
const (
	Normal    Kind = "normal"    // of Mu and Sigma
	Lognormal Kind = "lognormal" // of Mu and Sigma
	Gamma     Kind = "gamma"     // of Mu and Sigma
	Uniform   Kind = "uniform"   // from Min to Max
	Constant  Kind = "constant"  // Mu
	Histogram Kind = "histogram" // Bins, and even within each
)

// Kinds returns all kinds, in the order in which they are documented.
func Kinds() []Kind { return []Kind{Normal, Lognormal, Gamma, Uniform, Constant, Histogram} }

// Bin is a range of sizes of a histogram.
type Bin struct {
	From, To float64
	Weight   float64 // relative to those of the other bins
}

// Distribution is what sizes are drawn from. A size below Min or above Max is drawn again.
type Distribution struct {
	Kind      Kind // "": Normal
	Mu, Sigma float64
	Min       float64
	Max       float64 // 0: no limit
	Bins      []Bin   // ascending
}

// maxRedraws bounds the draws of one size. That many are needed where Min is about four standard
// deviations above the mean.
const maxRedraws = 10000

// stream is the second seed word of the PCG that draws sizes, so that drawing more of something
// else does not change them.
const stream = 0x73697a6573

// Draw draws n sizes. One that is still outside of Min and Max after maxRedraws draws becomes the
// nearer of the two.
func (d *Distribution) Draw(seed uint64, n int) []float64 {
	rng := rand.New(rand.NewPCG(seed, stream))
	draw := d.drawer(rng)
	sizes := make([]float64, n)
	for k := range sizes {
		sizes[k] = draw()
		for try := 0; !d.within(sizes[k]); try++ {
			if try == maxRedraws || d.certain() {
				sizes[k] = max(sizes[k], d.Min)
				if d.Max > 0 {
					sizes[k] = min(sizes[k], d.Max)
				}
				break
			}
			sizes[k] = draw()
		}
	}
	return sizes
}

// within reports whether a size need not be drawn again.
func (d *Distribution) within(size float64) bool {
	return size >= d.Min && (d.Max == 0 || size <= d.Max)
}

// certain reports whether all draws are the same.
func (d *Distribution) certain() bool {
	return d.Kind == Constant || d.Sigma == 0 && d.Kind != Uniform && d.Kind != Histogram
}

// drawer returns what draws one size.
func (d *Distribution) drawer(rng *rand.Rand) func() float64 {
	switch {
	case d.Kind == Uniform:
		return func() float64 { return d.Min + (d.Max-d.Min)*rng.Float64() }
	case d.Kind == Histogram:
		return d.fromBins(rng)
	case d.certain():
		return func() float64 { return d.Mu }
	case d.Kind == Lognormal:
		// the logarithm is normal, with this variance and mean
		variance := math.Log1p(d.Sigma / d.Mu * (d.Sigma / d.Mu))
		mean, deviation := math.Log(d.Mu)-variance/2, math.Sqrt(variance)
		return func() float64 { return math.Exp(mean + deviation*rng.NormFloat64()) }
	case d.Kind == Gamma:
		return gamma(rng, d.Mu/d.Sigma*(d.Mu/d.Sigma), d.Sigma*(d.Sigma/d.Mu))
	}
	return func() float64 { return d.Mu + d.Sigma*rng.NormFloat64() }
}

// fromBins returns what draws from the histogram.
func (d *Distribution) fromBins(rng *rand.Rand) func() float64 {
	sums := make([]float64, len(d.Bins))
	sum := 0.0
	for i, b := range d.Bins {
		sum += b.Weight
		sums[i] = sum
	}
	return func() float64 {
		at := rng.Float64() * sum
		i := min(sort.SearchFloat64s(sums, at), len(sums)-1)
		for i+1 < len(sums) && d.Bins[i].Weight == 0 { // at is exactly at its end
			i++
		}
		b := d.Bins[i]
		return b.From + (b.To-b.From)*rng.Float64()
	}
}

// gamma returns what draws from a gamma distribution (Marsaglia and Tsang, A simple method for
// generating gamma variables, 2000). A shape below 1 is one of shape+1 times a power of a uniform
// draw, by their section 6.
func gamma(rng *rand.Rand, shape, scale float64) func() float64 {
	boost := shape < 1
	d := shape - 1./3
	if boost {
		d++
	}
	c := 1 / math.Sqrt(9*d)
	return func() float64 {
		for {
			x := rng.NormFloat64()
			v := 1 + c*x
			if v <= 0 {
				continue
			}
			v = v * v * v
			if math.Log(1-rng.Float64()) >= x*x/2+d-d*v+d*math.Log(v) {
				continue
			}
			size := d * v * scale
			if boost {
				size *= math.Pow(1-rng.Float64(), 1/shape)
			}
			return size
		}
	}
}

// tries is how many draws Check makes: of an allowed distribution, about one in 20,000 at least is
// between Min and Max.
const tries = 20000

// Check returns why hardly any draw would be between Min and Max; nil if draws are. What the kind
// needs must be there.
func (d *Distribution) Check() error {
	if d.Max > 0 && d.Max < d.Min {
		return fmt.Errorf("max is %g MB, below min, %g MB", d.Max, d.Min)
	}
	draw := d.drawer(rand.New(rand.NewPCG(1, stream)))
	for range tries {
		if d.within(draw()) {
			return nil
		}
	}
	return fmt.Errorf("of %d draws none was from min to max, so nearly every draw would be drawn "+
		"again", tries)
}

// Mean returns the mean of the sizes in MB, without the effect of draws that are made again.
func (d *Distribution) Mean() float64 {
	switch d.Kind {
	case Uniform:
		return (d.Min + d.Max) / 2
	case Histogram:
		sum, weight := 0.0, 0.0
		for _, b := range d.Bins {
			sum += b.Weight * (b.From + b.To) / 2
			weight += b.Weight
		}
		return sum / weight
	}
	return d.Mu
}
