package transform

import (
	"math"
	"math/bits"
)

// Key identifies the random draws for a sample. Random parameters are a pure function of the key
// and the position of the transform in the list.
type Key struct {
	Seed   uint64
	Epoch  int
	Sample int // its ID, plus 2^32 for each earlier occurrence in the epoch
}

// draws generates the random numbers of one transform for one sample: SplitMix64, from a state into
// which the key and the position are mixed in turn. The draws of one transform do not affect any
// other. docs/SEMANTICS.md specifies the construction.
type draws struct {
	state uint64
}

const golden = 0x9E3779B97F4A7C15

// mix64 returns the output of SplitMix64 for the state x.
func mix64(x uint64) uint64 {
	x += golden
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// begin starts the random numbers of the transform at this position in the list.
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

// unit returns a number uniform in [0, 1), from the upper 53 bits.
func (d *draws) unit() float64 { return float64(d.next()>>11) * 0x1p-53 }

// uniform returns a number uniform in [from, to).
func (d *draws) uniform(from, to float64) float64 {
	return from + float64((to-from)*d.unit())
}

// below returns a whole number uniform in [0, n) (Lemire, Fast random integer generation in an
// interval, 2019). n must be positive.
func (d *draws) below(n int) int {
	for bound := uint64(n); ; {
		hi, lo := bits.Mul64(d.next(), bound)
		if lo >= bound || lo >= -bound%bound {
			return int(hi)
		}
	}
}

// round rounds as Python does: halves to even.
func round(x float64) int { return int(math.RoundToEven(x)) }
