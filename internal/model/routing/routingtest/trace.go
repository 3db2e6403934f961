// Package routingtest has what tests of the callers of package routing share: a run's reads as they
// happened (Event), and states of a node with the routing input that follows from them (State). The
// engine's tests record a run, and those of the replay decide alike at each of its reads; both map
// the same states to the same input.
package routingtest

import (
	"fmt"
	"strings"
	"time"
)

// What is a kind of event.
type What string

// The kinds of events.
const (
	// Fetch is a sample that is fetched and not in memory: what is read for it begins at the same
	// time. Of it, For is when the sample is needed, counted as At is.
	Fetch  What = "fetch"
	Begin  What = "begin"  // of a read
	End    What = "end"    // of a read; For is how long the owner waited for its source
	GiveUp What = "giveup" // of a read; one of a class has not ended yet
	Refuse What = "refuse" // the end of a request that the owner refused
)

// The tiers that are read.
const (
	Class  = "class"
	Owner  = "owner"
	Source = "source"
)

// Event is an event of a node. No two reads of a sample from a tier are in progress at once.
type Event struct {
	At     time.Duration // since the beginning
	What   What
	Tier   string // that is read; "-" where it does not matter
	Sample int
	For    time.Duration
}

// Format returns events as text, a line each.
func Format(events []Event) string {
	var b strings.Builder
	for _, e := range events {
		fmt.Fprintf(&b, "%d %s %s %d %d\n", e.At, e.What, e.Tier, e.Sample, e.For)
	}
	return b.String()
}

// Parse parses what Format returns.
func Parse(text string) (events []Event, err error) {
	for line := range strings.Lines(text) {
		var e Event
		_, err := fmt.Sscanf(line, "%d %s %s %d %d\n", &e.At, &e.What, &e.Tier, &e.Sample, &e.For)
		if err != nil {
			return nil, fmt.Errorf("event %d, %q: %w", len(events), line, err)
		}
		events = append(events, e)
	}
	return events, nil
}

// The samples of a recorded run: a node's class holds those below Held, and another node owns those
// in [OwnedFrom, OwnedTo).
const (
	Samples   = 64
	Held      = 32
	OwnedFrom = 16
	OwnedTo   = 48
)

// Size returns the bytes of a sample of a recorded run.
func Size(sample int) int { return 1000 + 37*sample }
