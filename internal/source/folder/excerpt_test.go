package folder

import "testing"

// TestChanceOf checks when files that keep failing are bad, and not their source.
func TestChanceOf(t *testing.T) {
	for _, c := range []struct {
		attempts, good, faults int
		least, most            float64
	}{
		{mostAttempts, 0, 0, lastDoubt, 1},    // nothing was read
		{mostAttempts, 1, 0, lastDoubt, 1},    // hardly anything was
		{7, 63, 0, 0, contentDoubt},           // all others were, at once
		{2, 63, 0, contentDoubt, lastDoubt},   // the same, on a disk that takes its time
		{mostAttempts, 63, 90, 0, lastDoubt},  // the others needed two or three attempts
		{mostAttempts, 60, 700, lastDoubt, 1}, // the others needed a dozen
	} {
		if got := chanceOf(c.attempts, c.good, c.faults); got < c.least || got > c.most {
			t.Errorf("%+v: %g", c, got)
		}
	}
}
