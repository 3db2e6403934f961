package access

import "github.com/hdmlp/hdmlp/internal/lib/mersenne"

// uint64Of is CPUGeneratorImpl::random64: the first word drawn is the high one.
func uint64Of(g *mersenne.Generator) uint64 {
	hi := g.Word()
	return uint64(hi)<<32 | uint64(g.Word())
}

// wideRandperm is the length from which current versions of torch.randperm draw 64 bits per
// element. torch 1.13 draws 32 bits at any length, so from this length on (214 million samples) its
// orders differ from those of current versions and from ours.
const wideRandperm = (1<<32 - 1) / 20

// randperm fills r with torch.randperm(len(r)) of a CPU generator seeded with seed.
func randperm(r []int32, seed uint32) {
	var g mersenne.Generator
	g.Seed(seed)
	if len(r) >= wideRandperm {
		shuffle64(r, &g)
		return
	}
	for i := range r {
		r[i] = int32(i)
	}
	shuffle32(r, &g)
}

// shuffle32 is torch's Fisher-Yates shuffle on 32-bit random numbers. It first draws a block of
// swaps and touches the elements that they will swap: as these reads are independent of each other,
// their cache misses overlap if r exceeds the processor's caches.
func shuffle32(r []int32, g *mersenne.Generator) (touched int32) {
	var other [mersenne.Size]uint32
	for i := 0; i < len(r)-1; {
		words := g.Untempered(len(r) - 1 - i)
		for n, y := range words {
			rest := r[i+n:]
			j := mersenne.Temper(y) % uint32(len(rest))
			other[n] = j
			touched |= rest[j]
		}
		for _, j := range other[:len(words)] {
			rest := r[i:]
			rest[0], rest[j] = rest[j], rest[0]
			i++
		}
	}
	return touched
}

// shuffle64 is torch's inside-out Fisher-Yates shuffle on 64-bit random numbers; it needs no
// initial values.
func shuffle64(r []int32, g *mersenne.Generator) {
	for i := range r {
		z := uint64Of(g) % uint64(i+1)
		r[i] = r[z]
		r[z] = int32(i)
	}
}
