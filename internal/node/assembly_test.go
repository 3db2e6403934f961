package node

import (
	"math"
	"testing"
)

// TestDrawnSeedsLeaveRoomForEpochs checks that a drawn seed fits into 63 bits, even with an epoch
// added.
func TestDrawnSeedsLeaveRoomForEpochs(t *testing.T) {
	for range 100 {
		if seed := DrawSeed(); seed > math.MaxInt64/2 {
			t.Fatalf("seed %d", seed)
		}
	}
}
