package access

import (
	"math"
	"math/bits"
)

// The Feistel shuffle is a keyed bijection on [0, F). An x of [0, a*b), a and b
// about sqrt(F), is the pair (x div b, x mod b). Each round adds a keyed hash of one half to the
// other, modulo its range; subtracting undoes it. As a*b exceeds F by less than 2*sqrt(F)+1, an
// image outside [0, F) is rare. The bijection is then applied again (cycle walking), which is still
// a bijection on [0, F).

// rounds of the network. With four, the test of adjacent differences fails.
const rounds = 6

// minHalf keeps the domain of a tiny F large enough for the rounds to mix.
const minHalf = 16

// domain is the pair of ranges for an F.
type domain struct {
	f, a, b uint32
	// ceil(2^64/b): x div b is the high word of x*inv, exactly, as x and b are below 2^32
	inv uint64
}

func newDomain(f int) domain {
	a := max(minHalf, int(math.Sqrt(float64(f))))
	b := max(minHalf, (f+a-1)/a)
	return domain{f: uint32(f), a: uint32(a), b: uint32(b), inv: math.MaxUint64/uint64(b) + 1}
}

// keyed is the bijection of one epoch.
type keyed struct {
	domain
	keys [rounds]uint64
}

// key derives the bijection of an epoch: its round keys are a SplitMix64
// sequence whose start depends on every bit of seed and epoch.
func (d domain) key(seed, epoch uint64) keyed {
	k := keyed{domain: d}
	z := mix64(mix64(seed+golden) + epoch*golden + golden)
	for i := range k.keys {
		z += golden
		k.keys[i] = mix64(z)
	}
	return k
}

// golden is SplitMix64's increment.
const golden = 0x9e3779b97f4a7c15

// mix64 is SplitMix64's finaliser.
func mix64(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// hash maps a half to [0, n), keyed.
func hash(half uint32, key uint64, n uint32) uint32 {
	h := (uint64(half) + key) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>32) * 0x94d049bb133111eb
	return uint32(h >> 32 * uint64(n) >> 32)
}

func add(x, y, n uint32) uint32 {
	x += y
	if x >= n {
		x -= n
	}
	return x
}

func sub(x, y, n uint32) uint32 {
	if x < y {
		x += n
	}
	return x - y
}

// forward returns the image of x < f.
func (k *keyed) forward(x uint32) uint32 {
	for {
		hi, _ := bits.Mul64(uint64(x), k.inv)
		l := uint32(hi)
		r := x - l*k.b
		for i := 0; i < rounds; i += 2 {
			l = add(l, hash(r, k.keys[i], k.a), k.a)
			r = add(r, hash(l, k.keys[i+1], k.b), k.b)
		}
		if x = l*k.b + r; x < k.f {
			return x
		}
	}
}

// backward returns the x whose image is y < f.
func (k *keyed) backward(y uint32) uint32 {
	for {
		hi, _ := bits.Mul64(uint64(y), k.inv)
		l := uint32(hi)
		r := y - l*k.b
		for i := rounds - 2; i >= 0; i -= 2 {
			r = sub(r, hash(l, k.keys[i+1], k.b), k.b)
			l = sub(l, hash(r, k.keys[i], k.a), k.a)
		}
		if y = l*k.b + r; y < k.f {
			return y
		}
	}
}
