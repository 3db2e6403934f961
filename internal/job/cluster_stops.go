package job

import (
	"cmp"
	"context"
	"os"
	"time"

	"github.com/hdmlp/hdmlp/internal/lockstep"
)

// stoppedPause lies between two attempts to tell a node that is there, and did not answer.
const stoppedPause = 250 * time.Millisecond

// tellStops tells the other nodes of this node's stops, whenever these change, until ctx ends: and once more then, because a process that does not expect
// an error leaves the job with it. What is told is always the whole list: a node that was cut off is told when it is back what it has missed.
func (o *others) tellStops(ctx context.Context) {
	heard := make([]int, o.nodes()) // by node, the version of the list that it was last told
	for {
		list, version, changed := o.job.stops.Own()
		var again <-chan time.Time
		if o.untold(heard, version) {
			for n, answer := range o.ask(context.Background(), askTime, askStopped, list) {
				if answer != nil {
					heard[n] = version
				}
			}
			if o.untold(heard, version) {
				again = time.After(stoppedPause)
			}
		}
		if ctx.Err() != nil {
			return
		}
		select {
		case <-changed:
		case <-o.back:
		case <-again:
		case <-ctx.Done():
		}
	}
}

// untold tells whether a node that can be asked was not told of this version.
func (o *others) untold(heard []int, version int) bool {
	for n, last := range heard {
		if n != o.me && last < version && o.silent(n) == slow {
			return true
		}
	}
	return false
}

// newStops returns the stops of a job that nobody has begun.
func (j *Job) newStops() *lockstep.Stops {
	node, host := 0, ""
	if j.message.Spans() {
		node = j.message.Cluster.Node
		host, _ = os.Hostname()
		host = cmp.Or(host, "without a name")
	}
	return lockstep.New(node, host, func(told error) { j.log.Warn(told.Error()) })
}

// answerStopped hears another node's stops. It needs no job that is open: a rank that has not begun is told as well when it does.
func (j *Job) answerStopped(text string) []byte {
	list, err := lockstep.Decode([]byte(text), j.message.WorldSize, j.message.Cluster.Nodes)
	if err != nil {
		j.log.Warn("a node says what is no list of ranks that stopped", "error", err)
		return nil
	}
	j.stops.Hear(list)
	return []byte{}
}
