package coordinator

import "github.com/hdmlp/hdmlp/internal/node/lockstep"

// stopsToTell returns this node's stops. The whole list is sent each time.
func (c *Coordinator) stopsToTell(int) (about any, version int, changed <-chan struct{}) {
	return c.o.Stops.Own()
}

// hearStopped takes in another node's stops. The job need not be open: a rank that has not begun is
// notified when it does.
func (c *Coordinator) hearStopped(text []byte) bool {
	list, err := lockstep.Decode(text, c.o.WorldSize, c.o.Nodes)
	if err != nil {
		c.o.Log.Warn("a node sent an invalid list of stopped ranks", "error", err)
		return false
	}
	c.o.Stops.Hear(list)
	return true
}
