package coordinator

import (
	"context"
	"time"

	"github.com/hdmlp/hdmlp/internal/lockstep"
)

// stoppedPause is the pause between attempts to send stops to a node that is alive but did not
// answer.
const stoppedPause = 250 * time.Millisecond

// broadcastStops sends this node's stops to the other nodes whenever they change, until ctx ends,
// and once more after that, because a process that does not handle the error leaves the job with
// it. The whole list is sent each time, so a node that was cut off catches up when it is back.
func (c *Coordinator) broadcastStops(ctx context.Context) {
	heard := make([]int, c.nodes()) // by node, the version of the list that it received last
	for {
		// Asked before the list is taken: one that was taken before ctx ended may lack the last stop.
		ended := ctx.Err() != nil
		list, version, changed := c.o.Stops.Own()
		var again <-chan time.Time
		if c.untold(heard, version) {
			for n, ok := range c.tell(context.Background(), tellStopped, list) {
				if ok {
					heard[n] = version
				}
			}
			if c.untold(heard, version) {
				again = time.After(stoppedPause)
			}
		}
		if ended {
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

// untold reports whether a node that can be asked has not received this version.
func (c *Coordinator) untold(heard []int, version int) bool {
	for n, last := range heard {
		if n != c.me && last < version && c.silent(n) == slow {
			return true
		}
	}
	return false
}

// hearStopped takes in another node's stops. The job need not be open: a rank that has not begun
// is told when it does.
func (c *Coordinator) hearStopped(text []byte) bool {
	list, err := lockstep.Decode(text, c.o.WorldSize, c.o.Nodes)
	if err != nil {
		c.o.Log.Warn("a node sent an invalid list of stopped ranks", "error", err)
		return false
	}
	c.o.Stops.Hear(list)
	return true
}
