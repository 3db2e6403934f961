package random

import (
	"math/bits"

	"github.com/hdmlp/hdmlp/internal/lib/mersenne"
)

// Numpy draws what numpy.random's functions give after numpy.random.seed.
type Numpy struct {
	key       uint32
	seeded    bool
	generator mersenne.Generator
}

// Below is numpy.random.choice of n, or randint(n), which draw the same. n must be positive and
// below 2^32. Of one number nothing is drawn.
func (s *Numpy) Below(n int) int {
	if n == 1 {
		return 0
	}
	if !s.seeded {
		s.generator.Seed(s.key)
		s.seeded = true
	}
	mask := uint32(1)<<bits.Len32(uint32(n-1)) - 1
	for {
		if v := int(s.generator.Word() & mask); v < n {
			return v
		}
	}
}
