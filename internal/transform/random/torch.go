package random

import (
	"math"

	"github.com/hdmlp/hdmlp/internal/lib/mersenne"
)

// Torch draws what torch's CPU generator gives after torch.manual_seed, which uses the lower
// 32 bits of the seed.
type Torch struct {
	key       uint32
	seeded    bool
	generator mersenne.Generator
	// What the next of few normal numbers is, if it has been computed.
	gaussian float64
	computed bool
}

func (t *Torch) word() uint32 {
	t.seed()
	return t.generator.Word()
}

// seed seeds the generator, unless it is.
func (t *Torch) seed() {
	if !t.seeded {
		t.generator.Seed(t.key)
		t.seeded = true
		t.computed = false
	}
}

// Uniform is torch.empty(1).uniform_(from, to): the lower 24 bits of a word, scaled with one
// rounding, as torch's kernels for processors with FMA do.
func (t *Torch) Uniform(from, to float32) float32 {
	return fma32(float32(t.word()&(1<<24-1))*0x1p-24, to-from, from)
}

// Rand is torch.rand(1).
func (t *Torch) Rand() float32 { return t.Uniform(0, 1) }

// Below is torch.randint(n, (1,)) for n below 2^25; releases differ above.
func (t *Torch) Below(n int) int { return int(t.word() % uint32(n)) }

// Permute is torch.randperm(len(p)): it permutes the numbers from 0 on.
func (t *Torch) Permute(p []int) {
	for i := range p {
		p[i] = i
	}
	for i := range len(p) - 1 {
		j := i + t.Below(len(p)-i)
		p[i], p[j] = p[j], p[i]
	}
}

// fma32 returns x*y + z, rounded once.
func fma32(x, y, z float32) float32 {
	product, addend := float64(x)*float64(y), float64(z) // the product is exact
	sum := product + addend
	// The rest of the sum (Knuth's TwoSum) decides where rounding twice would differ: if there is
	// one, the sum is rounded to odd, from which rounding to float32 is right (Boldo and Melquiond
	// 2008).
	back := sum - product
	rest := (product - (sum - back)) + (addend - back)
	if rest != 0 {
		if bits := math.Float64bits(sum); bits&1 == 0 {
			if (rest > 0) == (sum > 0) {
				bits++
			} else {
				bits--
			}
			sum = math.Float64frombits(bits)
		}
	}
	return float32(sum)
}

// Normal appends n numbers as torch.empty(n).normal_() draws them. Their last bits may differ, by
// up to 1e-5, as torch's vectorized functions are less exact than those here.
func (t *Torch) Normal(to []float32, n int) []float32 {
	const block = 16
	if n < block {
		for range n {
			to = append(to, float32(t.gauss()))
		}
		return to
	}
	first := len(to)
	for range n {
		to = append(to, t.Rand())
	}
	drawn := to[first:]
	for ; len(drawn) >= block; drawn = drawn[block:] {
		boxMuller(drawn[:block])
	}
	if len(drawn) > 0 { // the last numbers are drawn again
		drawn = to[len(to)-block:]
		for i := range drawn {
			drawn[i] = t.Rand()
		}
		boxMuller(drawn)
	}
	return to
}

// boxMuller converts uniform numbers to normal ones, each with the one half the list away.
func boxMuller(list []float32) {
	half := len(list) / 2
	for i := range half {
		radius := math.Sqrt(-2 * math.Log(float64(1-list[i])))
		sin, cos := math.Sincos(2 * math.Pi * float64(list[i+half]))
		list[i] = float32(radius * cos)
		list[i+half] = float32(radius * sin)
	}
}

// double is a number in [0, 1) of 53 bits.
func (t *Torch) double() float64 {
	high := uint64(t.word())
	return float64((high<<32|uint64(t.word()))&(1<<53-1)) * 0x1p-53
}

// gauss is torch's normal_distribution, which computes two numbers at a time.
func (t *Torch) gauss() float64 {
	t.seed()
	t.computed = !t.computed
	if !t.computed {
		return t.gaussian
	}
	angle := 2 * math.Pi * t.double()
	radius := math.Sqrt(-2 * math.Log1p(-t.double()))
	sin, cos := math.Sincos(angle)
	t.gaussian = radius * sin
	return radius * cos
}
