package access

// mt19937 is the Mersenne Twister as torch's CPU generator uses it
// (at::mt19937, Matsumoto and Nishimura 1998), with 32-bit outputs.
type mt19937 struct {
	state [mtN]uint32
	next  int

	touched int32 // keeps the compiler from dropping the reads of shuffle32
}

const (
	mtN = 624
	mtM = 397
	mtA = 0x9908b0df
)

func (g *mt19937) seed(seed uint32) {
	g.state[0] = seed
	for i := 1; i < mtN; i++ {
		prev := g.state[i-1]
		g.state[i] = 1812433253*(prev^prev>>30) + uint32(i)
	}
	g.next = mtN
}

// twist draws the next 624 words.
func (g *mt19937) twist() {
	s := &g.state
	for i := range mtN - mtM {
		y := s[i]&0x80000000 | s[i+1]&0x7fffffff
		s[i] = s[i+mtM] ^ y>>1 ^ -(y&1)&mtA
	}
	for i := mtN - mtM; i < mtN-1; i++ {
		y := s[i]&0x80000000 | s[i+1]&0x7fffffff
		s[i] = s[i+mtM-mtN] ^ y>>1 ^ -(y&1)&mtA
	}
	y := s[mtN-1]&0x80000000 | s[0]&0x7fffffff
	s[mtN-1] = s[mtM-1] ^ y>>1 ^ -(y&1)&mtA
	g.next = 0
}

func (g *mt19937) uint32() uint32 {
	if g.next == mtN {
		g.twist()
	}
	y := g.state[g.next]
	g.next++
	return temper(y)
}

// uint64 is CPUGeneratorImpl::random64: the first word drawn is the high one.
func (g *mt19937) uint64() uint64 {
	hi := g.uint32()
	return uint64(hi)<<32 | uint64(g.uint32())
}

func temper(y uint32) uint32 {
	y ^= y >> 11
	y ^= y << 7 & 0x9d2c5680
	y ^= y << 15 & 0xefc60000
	return y ^ y>>18
}

// wideRandperm is the length from which current versions of torch.randperm draw 64 bits per
// element. torch 1.13 draws 32 bits at any length, so from this length on (214 million samples) its
// orders differ from those of current versions and from ours.
const wideRandperm = (1<<32 - 1) / 20

// randperm fills r with torch.randperm(len(r)) of a CPU generator seeded with seed.
func randperm(r []int32, seed uint32) {
	var g mt19937
	g.seed(seed)
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
func shuffle32(r []int32, g *mt19937) {
	var other [mtN]uint32
	for i := 0; i < len(r)-1; {
		if g.next == mtN {
			g.twist()
		}
		words := g.state[g.next:min(mtN, g.next+len(r)-1-i)]
		g.next += len(words)
		var touched int32
		for n, y := range words {
			rest := r[i+n:]
			j := temper(y) % uint32(len(rest))
			other[n] = j
			touched |= rest[j]
		}
		g.touched = touched
		for _, j := range other[:len(words)] {
			rest := r[i:]
			rest[0], rest[j] = rest[j], rest[0]
			i++
		}
	}
}

// shuffle64 is torch's inside-out Fisher-Yates shuffle on 64-bit random numbers; it needs no
// initial values.
func shuffle64(r []int32, g *mt19937) {
	for i := range r {
		z := g.uint64() % uint64(i+1)
		r[i] = r[z]
		r[z] = int32(i)
	}
}
