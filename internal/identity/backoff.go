package identity

import (
	"math/rand/v2"
	"time"
)

// Backoff makes the pauses between attempts to reach a node: from First on each is twice the one
// before, up to Last. A pause is drawn between half of that and all of it, so that nodes that lost
// the same connection do not come back all at once. It is for one goroutine.
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

// Reset begins anew: the node was reached.
func (b *Backoff) Reset() { b.next = 0 }

// Fresh reports whether there was no pause since the node was reached.
func (b *Backoff) Fresh() bool { return b.next == 0 }
