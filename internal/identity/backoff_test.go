package identity

import (
	"testing"
	"time"
)

// TestPausesDouble: up to the last, drawn from the upper half, and from the first on again once the
// node was reached.
func TestPausesDouble(t *testing.T) {
	for range 100 {
		b := Backoff{First: 50 * time.Millisecond, Last: time.Second}
		for round := range 2 {
			if !b.Fresh() {
				t.Fatalf("round %d: it has paused", round)
			}
			for _, most := range []time.Duration{50, 100, 200, 400, 800, 1000, 1000} {
				most *= time.Millisecond
				if got := b.Next(); got < most/2 || got > most || b.Fresh() {
					t.Fatalf("round %d: a pause of %v where it is to be at most %v", round, got,
						most)
				}
			}
			b.Reset()
		}
	}
}

func TestPausesOfDifferentNodesDiffer(t *testing.T) {
	pauses := map[time.Duration]bool{}
	for range 20 {
		b := Backoff{First: time.Second, Last: time.Second}
		pauses[b.Next()] = true
	}
	if len(pauses) < 2 {
		t.Error("all nodes come back at the same moment")
	}
}

// TestShortLastPause: where the last pause is shorter than the first, it holds.
func TestShortLastPause(t *testing.T) {
	b := Backoff{First: time.Second, Last: time.Millisecond}
	for range 3 {
		if got := b.Next(); got > time.Millisecond || b.Fresh() {
			t.Errorf("a pause of %v", got)
		}
	}
}
