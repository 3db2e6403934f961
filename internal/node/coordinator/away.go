package coordinator

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"
)

// away are the samples that this node gave back because memory was short. The other nodes read them
// from the source instead of asking in vain. The whole set is sent whenever it has changed, so a
// node that was cut off catches up, and the latest message is all that counts.
type away struct {
	changed chan struct{} // receives a token when the set has changed, or a node is back

	mu      sync.Mutex // guards the following
	bits    []byte     // by sample
	version int
}

// awayMessage is a part of a node's set.
type awayMessage struct {
	Node    int    `json:"node"`
	Version int    `json:"version"` // the highest counts
	From    int    `json:"from"`    // the first sample of Bits, a multiple of 8
	Bits    []byte `json:"bits"`    // from From on; samples after the last bit are held
}

const (
	// awayPart is how many samples a message covers.
	awayPart = 1 << 22
	// awayPause lets one message cover several segments that are given back together, and is the
	// pause between attempts to reach a node.
	awayPause = 100 * time.Millisecond
)

// watcher is store.Watcher.
type watcher = interface {
	Vacate(class int, segment uint32, samples []int32, settled, gone func())
	Refill()
	Delay() time.Duration
}

// Vacate implements store.Watcher.
func (c *Coordinator) Vacate(_ int, _ uint32, samples []int32, settled, gone func()) {
	defer gone()
	defer settled()
	if len(samples) == 0 {
		return // they were dropped one by one, and memory is not short
	}
	a := &c.away
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, id := range samples {
		if need := int(id)/8 + 1; need > len(a.bits) {
			a.bits = append(a.bits, make([]byte, need-len(a.bits))...)
		}
		a.bits[id/8] |= 1 << (id % 8)
	}
	a.version++
	a.notify()
}

// Refill implements store.Watcher.
func (c *Coordinator) Refill() {
	a := &c.away
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.bits) > 0 {
		a.bits = nil
		a.version++
		a.notify()
	}
}

// Delay implements store.Watcher.
func (c *Coordinator) Delay() time.Duration { return 0 }

func (a *away) notify() {
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// get returns the set and its version.
func (a *away) get() ([]byte, int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.bits), a.version
}

// broadcastAway sends the other nodes the set of samples that were given back, whenever it changes
// or a node comes back, until ctx ends.
func (c *Coordinator) broadcastAway(ctx context.Context) {
	heard := make([]int, c.nodes()) // by node, the version that it received last
	var again <-chan time.Time
	for {
		select {
		case <-c.away.changed:
			if again == nil { // or one segment after the other would delay it for ever
				again = time.After(awayPause)
			}
			continue
		case <-again:
		case <-ctx.Done():
			return
		}
		again = nil
		bits, version := c.away.get()
		if !c.untold(heard, version) {
			continue // a node is back that has the set
		}
		told := c.tellAway(ctx, bits, version)
		for n := range heard {
			if told[n] {
				heard[n] = version
			}
		}
		if c.untold(heard, version) {
			again = time.After(awayPause)
		}
	}
}

// tellAway sends the set in parts, and returns which nodes have received all of them.
func (c *Coordinator) tellAway(ctx context.Context, bits []byte, version int) []bool {
	told := slices.Repeat([]bool{true}, c.nodes())
	for from := 0; from == 0 || from < 8*len(bits); from += awayPart {
		m := awayMessage{Node: c.me, Version: version, From: from}
		if from < 8*len(bits) {
			m.Bits = bits[from/8 : min(len(bits), (from+awayPart)/8)]
		}
		for n, heard := range c.tell(ctx, tellAway, m) {
			told[n] = told[n] && heard
		}
	}
	return told
}

// hearAway takes in a part of another node's set.
func (c *Coordinator) hearAway(text []byte) bool {
	if !c.open() {
		return false
	}
	var m awayMessage
	end := c.o.Index.Len() + 7
	if err := json.Unmarshal(text, &m); err != nil || m.Node < 0 || m.Node >= c.nodes() ||
		m.From < 0 || m.From%8 != 0 || m.From > end || 8*len(m.Bits) > end-m.From {
		c.o.Log.Warn("a node sent an invalid set of samples that it gave back", "error", err)
		return false
	}
	c.peers.SetAway(m.Node, m.Version, m.From, m.Bits)
	return true
}
