package coordinator

import (
	"encoding/json"

	"github.com/hdmlp/hdmlp/internal/report"
)

// All nodes read the source with as many streams as node 0 finds to be best: nodes that share a
// source cannot find that alone (pool.Gate.Follow).

// streamsToTell returns the number of streams that this node has found.
func (c *Coordinator) streamsToTell(int) (about any, version int, changed <-chan struct{}) {
	h := c.holder.Load()
	if h == nil {
		return nil, 0, c.serving
	}
	found, version, changed := h.samples.FoundStreams()
	return found, version, changed
}

// hearStreams takes in the number of streams that node 0 has found.
func (c *Coordinator) hearStreams(text []byte) bool {
	var found report.Streams
	err := json.Unmarshal(text, &found)
	if err != nil || found.Number < 1 || found.Takes < 0 || c.me == 0 {
		c.o.Log.Warn("a node sent an invalid number of streams", "error", err, "found", found)
		return false
	}
	h := c.holder.Load()
	if h == nil {
		return false
	}
	h.samples.FollowStreams(found)
	return true
}
