package auth

import (
	"testing"
	"time"
)

// TestPausesDouble: up to Last, each random in the upper half, and starting again from First after
// Reset.
func TestPausesDouble(t *testing.T) {
	for range 100 {
		b := Backoff{First: 50 * time.Millisecond, Last: time.Second}
		for round := range 2 {
			if !b.Fresh() {
				t.Fatalf("round %d: not fresh", round)
			}
			for _, most := range []time.Duration{50, 100, 200, 400, 800, 1000, 1000} {
				most *= time.Millisecond
				if got := b.Next(); got < most/2 || got > most || b.Fresh() {
					t.Fatalf("round %d: a pause of %v; at most %v expected", round, got,
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
		t.Error("all nodes reconnect at the same moment")
	}
}

// TestShortLastPause: a Last that is shorter than First limits all pauses.
func TestShortLastPause(t *testing.T) {
	b := Backoff{First: time.Second, Last: time.Millisecond}
	for range 3 {
		if got := b.Next(); got > time.Millisecond || b.Fresh() {
			t.Errorf("a pause of %v", got)
		}
	}
}

// TestShortestPauses checks that there is a pause of less than two nanoseconds.
func TestShortestPauses(t *testing.T) {
	b := Backoff{First: 1, Last: 1}
	if got := b.Next(); got < 0 || got > 1 {
		t.Errorf("%d ns", got)
	}
}
