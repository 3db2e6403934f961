// Package mersenne implements the Mersenne Twister MT19937 (Matsumoto and Nishimura 1998), with the
// two ways to seed it that Python's libraries use: torch and numpy's legacy generator seed it with
// one word, Python's random module with a list of words.
//
// A Generator is not safe for concurrent use.
package mersenne

const (
	// Size is the number of words of the state.
	Size = 624

	middle = 397
	matrix = 0x9908b0df
	upper  = 0x80000000
	lower  = 0x7fffffff
)

// Generator generates 32-bit words. It must be seeded.
//
// The words of the first block are computed when they are needed, because the transform of a sample
// draws a few: the first takes two thirds of the time of seeding, and no block.
type Generator struct {
	state  [Size]uint32
	next   int // the next word of the block
	ready  int // how many words of the block are computed
	seeded int // how many words of the state are initialised
}

// Seed seeds the generator with one word: init_genrand of the reference implementation,
// torch.manual_seed and numpy.random.seed.
func (g *Generator) Seed(word uint32) {
	g.state[0] = word
	g.seeded = 1
	g.begin()
}

// SeedWith seeds the generator with a list of words: init_by_array of the reference implementation.
// random.seed(n) gives the words of abs(n), the lowest first, without leading zeros, at least one.
func (g *Generator) SeedWith(words []uint32) {
	g.Seed(19650218)
	g.initialise(Size)
	s := &g.state
	i, j := 1, 0
	for range max(Size, len(words)) {
		s[i] = (s[i] ^ (s[i-1]^s[i-1]>>30)*1664525) + words[j] + uint32(j)
		i, j = i+1, (j+1)%len(words)
		if i == Size {
			s[0], i = s[Size-1], 1
		}
	}
	for range Size - 1 {
		s[i] = (s[i] ^ (s[i-1]^s[i-1]>>30)*1566083941) - uint32(i)
		if i++; i == Size {
			s[0], i = s[Size-1], 1
		}
	}
	s[0] = upper
	g.begin()
}

// begin has a block computed with the next word.
func (g *Generator) begin() { g.next, g.ready = 0, 0 }

// initialise initialises the first n words of the state.
func (g *Generator) initialise(n int) {
	s := &g.state
	for i := g.seeded; i < n; i++ {
		before := s[i-1]
		s[i] = 1812433253*(before^before>>30) + uint32(i)
	}
	g.seeded = max(g.seeded, n)
}

// compute computes the words of the block up to word n.
func (g *Generator) compute(n int) {
	g.initialise(min(n+middle, Size))
	s := &g.state
	i := g.ready
	for ; i < min(n, Size-middle); i++ {
		y := s[i]&upper | s[i+1]&lower
		s[i] = s[i+middle] ^ y>>1 ^ -(y&1)&matrix
	}
	for ; i < min(n, Size-1); i++ {
		y := s[i]&upper | s[i+1]&lower
		s[i] = s[i+middle-Size] ^ y>>1 ^ -(y&1)&matrix
	}
	if i < n {
		y := s[Size-1]&upper | s[0]&lower
		s[Size-1] = s[middle-1] ^ y>>1 ^ -(y&1)&matrix
	}
	g.ready = n
}

// Word draws 32 bits.
func (g *Generator) Word() uint32 {
	if g.next == g.ready {
		if g.next == Size {
			g.begin()
		}
		g.compute(g.next + 1)
	}
	y := g.state[g.next]
	g.next++
	return Temper(y)
}

// Untempered draws at least one and at most n words that Temper has still to be applied to. They
// are valid until the next call. n must be positive.
func (g *Generator) Untempered(n int) []uint32 {
	if g.next == Size {
		g.begin()
	}
	if g.ready < Size {
		g.compute(Size)
	}
	first := g.next
	g.next = min(Size, first+n)
	return g.state[first:g.next]
}

// Temper makes a word of one that Untempered returns.
func Temper(y uint32) uint32 {
	y ^= y >> 11
	y ^= y << 7 & 0x9d2c5680
	y ^= y << 15 & 0xefc60000
	return y ^ y>>18
}
