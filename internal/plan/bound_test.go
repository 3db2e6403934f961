package plan

import "testing"

func TestBoundOfEpochsWithDifferentSamples(t *testing.T) {
	same := []Demand{{100, 100}, {100, 0}, {100, 0}}
	if got, want := BoundOf(same, always(40)), Bound(100, 40, 3); got != want {
		t.Errorf("epochs that need the same: %d, want %d", got, want)
	}
	if got := BoundOf([]Demand{{60, 60}, {70, 30}, {50, 0}}, always(45)); got != 60+30+5 {
		t.Errorf("epochs that need others: %d, want 95", got)
	}
}

// TestBoundOfCachesThatShrink: what an epoch reads depends on what was cached when it began.
func TestBoundOfCachesThatShrink(t *testing.T) {
	cached := []int64{100, 100, 30, 60}
	same := []Demand{{100, 100}, {100, 0}, {100, 0}, {100, 0}}
	if got := BoundOf(same, func(at int) int64 { return cached[at] }); got != 100+0+70+40 {
		t.Errorf("%d, want 210", got)
	}
}

// always returns caches of one size.
func always(bytes int64) func(int) int64 { return func(int) int64 { return bytes } }

func TestBoundOfEqualEpochs(t *testing.T) {
	for _, c := range []struct {
		dataset, cached int64
		epochs          int
		want            int64
	}{
		{100, 0, 3, 300},
		{100, 40, 3, 220},
		{100, 100, 3, 100},
		{100, 1000, 3, 100},
		{100, 0, 1, 100},
		{100, 0, 0, 0},
	} {
		if got := Bound(c.dataset, c.cached, c.epochs); got != c.want {
			t.Errorf("Bound(%d, %d, %d) = %d, want %d", c.dataset, c.cached, c.epochs, got, c.want)
		}
	}
}
