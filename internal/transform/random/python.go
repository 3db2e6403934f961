package random

import (
	"math"
	"math/bits"

	"github.com/hdmlp/hdmlp/internal/lib/mersenne"
	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// Python draws what the functions of Python's random module give after random.seed.
type Python struct {
	key       uint64
	seeded    bool
	generator mersenne.Generator
	// What the next call of gauss gives, if it has been computed.
	gaussian float64
	computed bool
}

func (p *Python) word() uint32 {
	p.seed()
	return p.generator.Word()
}

// seed seeds the generator, unless it is.
func (p *Python) seed() {
	if !p.seeded {
		words := []uint32{uint32(p.key), uint32(p.key >> 32)}
		if words[1] == 0 {
			words = words[:1]
		}
		p.generator.SeedWith(words)
		p.seeded = true
		p.computed = false
	}
}

// Random is random.random: 53 bits of two words.
func (p *Python) Random() float64 {
	high, low := p.word()>>5, p.word()>>6
	return (float64(high)*(1<<26) + float64(low)) * 0x1p-53
}

// Uniform is random.uniform(from, to).
func (p *Python) Uniform(from, to float64) float64 {
	return from + float64((to-from)*p.Random())
}

// Below is random.randrange(n), which random.randint and random.choice use. n must be positive and
// below 2^32.
func (p *Python) Below(n int) int {
	unused := 32 - bits.Len32(uint32(n))
	for {
		if v := int(p.word() >> unused); v < n {
			return v
		}
	}
}

// Pick is random.choices without weights, of one of n.
func (p *Python) Pick(n int) int { return int(math.Floor(p.Random() * float64(n))) }

// PickBy is random.choices of one, with the running sums of weights.
func (p *Python) PickBy(sums []float64) int {
	at := p.Random() * sums[len(sums)-1]
	last := len(sums) - 1
	for i, sum := range sums[:last] {
		if at < sum {
			return i
		}
	}
	return last
}

// Shuffle is random.shuffle of the numbers from 0 on.
func (p *Python) Shuffle(order []int) {
	for i := range order {
		order[i] = i
	}
	for i := len(order) - 1; i > 0; i-- {
		j := p.Below(i + 1)
		order[i], order[j] = order[j], order[i]
	}
}

// Gauss is random.gauss(mean, deviation), which computes two numbers at a time (Box and Muller).
func (p *Python) Gauss(mean, deviation float64) float64 {
	p.seed()
	z := p.gaussian
	if !p.computed {
		angle := p.Random() * (2 * math.Pi)
		radius := math.Sqrt(-2 * pixels.Log(1-p.Random()))
		sin, cos := pixels.SinCos(angle)
		z = cos * radius
		p.gaussian = sin * radius
	}
	p.computed = !p.computed
	return mean + float64(z*deviation)
}
