package transform

import (
	"math"

	"github.com/hdmlp/hdmlp/internal/lib/mersenne"
)

// torchStream draws what torch's CPU generator gives after torch.manual_seed, which uses the lower
// 32 bits of the seed.
type torchStream struct {
	key       uint32
	seeded    bool
	generator mersenne.Generator
}

func (t *torchStream) word() uint32 {
	if !t.seeded {
		t.generator.Seed(t.key)
		t.seeded = true
	}
	return t.generator.Word()
}

// uniform is torch.empty(1).uniform_(from, to): the lower 24 bits of a word, scaled with one
// rounding, as torch's kernels for processors with FMA do.
func (t *torchStream) uniform(from, to float32) float32 {
	return fma32(float32(t.word()&(1<<24-1))*0x1p-24, to-from, from)
}

// rand is torch.rand(1).
func (t *torchStream) rand() float32 { return t.uniform(0, 1) }

// below is torch.randint(n, (1,)) for n below 2^25; releases differ above.
func (t *torchStream) below(n int) int { return int(t.word() % uint32(n)) }

// permute is torch.randperm(len(p)): it permutes the numbers from 0 on.
func (t *torchStream) permute(p []int) {
	for i := range p {
		p[i] = i
	}
	for i := range len(p) - 1 {
		j := i + t.below(len(p)-i)
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
