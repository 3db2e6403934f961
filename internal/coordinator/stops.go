package coordinator

import (
	"context"
	"time"

	"github.com/hdmlp/hdmlp/internal/lockstep"
)

// stoppedPause lies between two attempts to tell a node that is there, and did not answer.
const stoppedPause = 250 * time.Millisecond

// tellStops tells the other nodes of this node's stops, whenever these change, until ctx ends: and
// once more then, because a process that does not expect an error leaves the job with it. What is
// told is always the whole list: a node that was cut off is told when it is back what it has
// missed.
func (c *Coordinator) tellStops(ctx context.Context) {
	heard := make([]int, c.nodes()) // by node, the version of the list that it was last told
	for {
		list, version, changed := c.o.Stops.Own()
		var again <-chan time.Time
		if c.untold(heard, version) {
			for n, answer := range c.ask(context.Background(), askTime, askStopped, list) {
				if answer != nil {
					heard[n] = version
				}
			}
			if c.untold(heard, version) {
				again = time.After(stoppedPause)
			}
		}
		if ctx.Err() != nil {
			return
		}
		select {
		case <-changed:
		case <-c.back:
		case <-again:
		case <-ctx.Done():
		}
	}
}

// untold reports whether a node that can be asked was not told of this version.
func (c *Coordinator) untold(heard []int, version int) bool {
	for n, last := range heard {
		if n != c.me && last < version && c.silent(n) == slow {
			return true
		}
	}
	return false
}

// answerStopped hears another node's stops. It needs no job that is open: a rank that has not begun
// is told as well when it does.
func (c *Coordinator) answerStopped(text string) []byte {
	list, err := lockstep.Decode([]byte(text), c.o.WorldSize, c.o.Nodes)
	if err != nil {
		c.o.Log.Warn("a node says what is no list of ranks that stopped", "error", err)
		return nil
	}
	c.o.Stops.Hear(list)
	return []byte{}
}
