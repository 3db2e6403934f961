package preprocess

import (
	"slices"
	"testing"
	"time"
)

// TestShare: who waits for a thread waits for all transforms, as much as they take, and not for the first alone.
func TestShare(t *testing.T) {
	for _, c := range []struct{ took, want []time.Duration }{
		{[]time.Duration{10, 0, 20}, []time.Duration{1 + 20, 2, 3 + 40}},
		{[]time.Duration{0, 0, 0}, []time.Duration{1 + 30, 2, 3}},
	} {
		spent := []time.Duration{1, 2, 3}
		if share(spent, c.took, 30); !slices.Equal(spent, c.want) {
			t.Errorf("%v and a wait of 30: %v, and should be %v", c.took, spent, c.want)
		}
	}
}
