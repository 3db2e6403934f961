package auth

import (
	"math/rand/v2"
	"time"
)

// Backoff returns the pauses between attempts to reach a node: First, then twice the previous one
// each, up to Last. A pause is random between half of that value and all of it, so that nodes that
// lost the same connection do not reconnect at once. It is not safe for concurrent use.
type Backoff struct {
	First, Last time.Duration

	next time.Duration // 0: First
}

// Next returns the pause before the next attempt.
func (b *Backoff) Next() time.Duration {
	pause := min(max(b.next, b.First), b.Last)
	b.next = min(2*pause, b.Last)
	return pause/2 + rand.N(pause/2+1)
}

// Reset restarts the pauses at First; call it when the node was reached.
func (b *Backoff) Reset() { b.next = 0 }

// Fresh reports whether Next has not been called since the last Reset.
func (b *Backoff) Fresh() bool { return b.next == 0 }
