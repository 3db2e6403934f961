package coordinator

import (
	"context"
	"math"
	"time"
)

// toldPause is the pause between attempts to tell a node that is alive but did not answer.
const toldPause = 250 * time.Millisecond

// broadcast is news that this node sends to all others whenever there is any.
type broadcast struct {
	word string        // precedes the news
	back chan struct{} // receives a token when a node may have come back
	// passing is set if the news is of no use once this node leaves the job, which then does not wait
	// until it is sent.
	passing bool
	// latest returns the news for a node that has received version since; nil: there is none. Once it
	// has that, it has received version, and there is more once changed is closed.
	latest func(since int) (about any, version int, changed <-chan struct{})
}

func newBroadcast(word string,
	latest func(since int) (about any, version int, changed <-chan struct{}),
) *broadcast {
	return &broadcast{word: word, back: make(chan struct{}, 1), latest: latest}
}

// run sends the news to the other nodes until ctx ends, and once more after that, because a process
// that does not handle an error leaves the job with it. A node that was cut off catches up when it
// is back.
func (b *broadcast) run(ctx context.Context, c *Coordinator) {
	heard := make([]int, c.nodes()) // by node, the version that it received last
	within := context.WithoutCancel(ctx)
	if b.passing {
		within = ctx
	}
	for {
		// Asked before the news is taken: what was taken before ctx ended may lack the last of it.
		ended := ctx.Err() != nil
		if ended && b.passing {
			return
		}
		since := c.heardByAll(heard)
		about, version, changed := b.latest(since)
		var again <-chan time.Time
		if c.untold(heard, version) {
			for n, ok := range c.tell(within, b.word, about) {
				if ok && heard[n] >= since { // else it is back, and lacks more
					heard[n] = max(heard[n], version)
				}
			}
			if c.untold(heard, version) {
				again = time.After(toldPause)
			}
		}
		if ended {
			return
		}
		select {
		case <-changed:
		case <-b.back:
		case <-again:
		case <-ctx.Done():
		}
	}
}

// heardByAll returns the version that all nodes have received that can be asked.
func (c *Coordinator) heardByAll(heard []int) (version int) {
	version = math.MaxInt
	for n, last := range heard {
		if n != c.me && c.silent(n) == slow {
			version = min(version, last)
		}
	}
	return version
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
