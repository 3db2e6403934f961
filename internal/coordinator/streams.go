package coordinator

import "encoding/json"

// All nodes read the source with as many streams as node 0 finds to be best: nodes that share a
// source cannot find that alone (pool.Gate.Follow).

// streamsToTell returns the number of streams that this node has found.
func (c *Coordinator) streamsToTell(int) (about any, version int, changed <-chan struct{}) {
	h := c.holder.Load()
	if h == nil {
		return nil, 0, c.serving
	}
	streams, version, changed := h.samples.FoundStreams()
	return streams, version, changed
}

// hearStreams takes in the number of streams that node 0 has found.
func (c *Coordinator) hearStreams(text []byte) bool {
	var streams int
	if err := json.Unmarshal(text, &streams); err != nil || streams < 1 || c.me == 0 {
		c.o.Log.Warn("a node sent an invalid number of streams", "error", err, "number", streams)
		return false
	}
	if h := c.holder.Load(); h != nil { // else it hears of the number again once it reads
		h.samples.FollowStreams(streams)
	}
	return true
}
