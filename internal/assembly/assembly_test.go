package assembly

import (
	"math"
	"testing"
)

// TestDrawnSeeds: a seed that is drawn fits into 63 bits, also with an epoch added to it.
func TestDrawnSeeds(t *testing.T) {
	for range 100 {
		if seed := drawSeed(); seed > math.MaxInt64/2 {
			t.Fatalf("seed %d", seed)
		}
	}
}
