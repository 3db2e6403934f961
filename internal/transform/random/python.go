package transform

import (
	"math/bits"

	"github.com/hdmlp/hdmlp/internal/lib/mersenne"
)

// pythonStream draws what the functions of Python's random module give after random.seed.
type pythonStream struct {
	key       uint64
	seeded    bool
	generator mersenne.Generator
}

func (p *pythonStream) word() uint32 {
	if !p.seeded {
		words := []uint32{uint32(p.key), uint32(p.key >> 32)}
		if words[1] == 0 {
			words = words[:1]
		}
		p.generator.SeedWith(words)
		p.seeded = true
	}
	return p.generator.Word()
}

// random is random.random: 53 bits of two words.
func (p *pythonStream) random() float64 {
	high, low := p.word()>>5, p.word()>>6
	return (float64(high)*(1<<26) + float64(low)) * 0x1p-53
}

// uniform is random.uniform(from, to).
func (p *pythonStream) uniform(from, to float64) float64 {
	return from + float64((to-from)*p.random())
}

// below is random.randrange(n), which random.randint and random.choice use. n must be positive and
// below 2^32.
func (p *pythonStream) below(n int) int {
	unused := 32 - bits.Len32(uint32(n))
	for {
		if v := int(p.word() >> unused); v < n {
			return v
		}
	}
}
