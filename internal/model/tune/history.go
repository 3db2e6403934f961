package tune

import (
	"iter"
	"slices"
	"time"
)

// History is how a number changed: what was in force in which part of a run can be known only if it
// was recorded. It is not safe for concurrent use.
type History struct{ changes []change }

type change struct {
	at    time.Time
	value int
}

// mostChanges is how many changes are kept, the first ones. They become rarer as a tuner's pauses
// become longer.
const mostChanges = 256

// Add records the number that is in force from now on, if it differs from the last one.
func (h *History) Add(now time.Time, value int) {
	n := len(h.changes)
	if n == mostChanges || n > 0 && h.changes[n-1].value == value {
		return
	}
	h.changes = append(h.changes, change{now, value})
}

// All returns the changes so far, oldest first, each with when it came into force. What is recorded
// later does not change the sequence.
func (h *History) All() iter.Seq2[time.Time, int] {
	all := slices.Clone(h.changes)
	return func(yield func(time.Time, int) bool) {
		for _, c := range all {
			if !yield(c.at, c.value) {
				return
			}
		}
	}
}
