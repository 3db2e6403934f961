package agent

import (
	"context"
	"net"

	"github.com/hdmlp/hdmlp/internal/peers/cluster"
)

// Members returns all nodes, by number.
func (a *Agent) Members() []cluster.Member {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make([]cluster.Member, a.o.Nodes)
	for i := range out {
		out[i] = a.nodes[i].Member
	}
	return out
}

// Member returns one node.
func (a *Agent) Member(node int) cluster.Member {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.nodes[node].Member
}

// Dial connects to the address on which a node serves samples, as last reported.
func (a *Agent) Dial(ctx context.Context, node int) (net.Conn, error) {
	return a.o.Network.Dial(ctx, a.Member(node).Exchange)
}

// Broadcast returns what node 0 sent to all nodes. The caller must not modify it.
func (a *Agent) Broadcast() []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.broadcast
}

// Alive reports whether a node's daemon is running, as far as this node has noticed. A daemon that
// was killed is noticed within a second; a host or link that is silent, after about 13 seconds.
func (a *Agent) Alive(node int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	m := a.nodes[node]
	return m != nil && !m.down
}

// Notify calls f with the nodes that are lost, and from then on whenever a node is lost or comes
// back, from one goroutine, in order. A loss may be reported twice. When f is called with alive
// true, Members already has the node's new address. A node that was restarted before its loss was
// noticed is reported as lost and then as back. f must not block for long, and must not call Close.
func (a *Agent) Notify(f func(node int, alive bool)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.listeners = append(a.listeners, f)
	for n := range a.o.Nodes {
		if m := a.nodes[n]; m != nil && m.down {
			a.events.Put(event{n, false}) // its event may have been taken before
		}
	}
}

// Close leaves the cluster; the other nodes are notified at once. Close is idempotent.
func (a *Agent) Close() error {
	a.once.Do(func() {
		a.leave()
		if a.stop != nil {
			a.stop()
		}
		a.release()
	})
	return nil
}
