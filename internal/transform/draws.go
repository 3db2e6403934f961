package transform

import (
	"math"
	"math/bits"
)

// Key says which draw of a sample is wanted. Random parameters are a pure
// function of the key and the position of the transform that asks for them.
type Key struct {
	Seed   uint64
	Epoch  int
	Sample int // its ID, and 2^32 more for each time that the epoch has it beside
}

// draws gives one transform its random numbers for one sample: SplitMix64 from
// a state that key and position are mixed into, one after the other. What one
// transform draws has no effect on any other. docs/SEMANTICS.md has the construction.
type draws struct {
	state uint64
}

const golden = 0x9E3779B97F4A7C15

// mix64 is what SplitMix64 draws from the state x.
func mix64(x uint64) uint64 {
	x += golden
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// begin starts the numbers of the transform at this position of the list.
func (d *draws) begin(key Key, position int) {
	h := mix64(key.Seed)
	h = mix64(h ^ uint64(key.Epoch))
	h = mix64(h ^ uint64(key.Sample))
	d.state = mix64(h ^ uint64(position))
}

func (d *draws) next() uint64 {
	x := mix64(d.state)
	d.state += golden
	return x
}

// unit is uniform in [0, 1): the upper 53 bits.
func (d *draws) unit() float64 { return float64(d.next()>>11) * 0x1p-53 }

// uniform is uniform in [from, to).
func (d *draws) uniform(from, to float64) float64 {
	return from + float64((to-from)*d.unit())
}

// below is a whole number in [0, n), each equally likely (Lemire, Fast random
// integer generation in an interval, 2019). n must be positive.
func (d *draws) below(n int) int {
	for bound := uint64(n); ; {
		hi, lo := bits.Mul64(d.next(), bound)
		if lo >= bound || lo >= -bound%bound {
			return int(hi)
		}
	}
}

// round is Python's: halves go to the even neighbour.
func round(x float64) int { return int(math.RoundToEven(x)) }
