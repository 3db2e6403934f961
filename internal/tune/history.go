package tune

import "time"

// Change is a number that came into force at a time.
type Change struct {
	Time  time.Time
	Value int
}

// History is how a number changed, oldest first: what was in force in which part of a run can be
// known only if it was recorded. It is not safe for concurrent use.
type History []Change

// mostChanges is how many changes are kept, the first ones. They become rarer as a tuner's pauses
// become longer.
const mostChanges = 256

// Add records the number that is in force from now on, if it differs from the last one.
func (h *History) Add(now time.Time, value int) {
	n := len(*h)
	if n == mostChanges || n > 0 && (*h)[n-1].Value == value {
		return
	}
	*h = append(*h, Change{now, value})
}
