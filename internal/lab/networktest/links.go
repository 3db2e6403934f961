package networktest

import (
	"net/netip"
	"time"
)

// Link is how one host's data travels to another. The zero value delivers at once.
type Link struct {
	// Cut holds back what is sent until the link is replaced by one that is not cut; datagrams are
	// lost.
	Cut   bool
	Delay time.Duration // from one end to the other
	Rate  int64         // bytes per second, for all connections together; 0: no limit
	Loss  float64       // share of datagrams that are lost
	Flips float64       // share of writes to connections of which a bit arrives flipped
}

// pair is a way between two hosts.
type pair struct{ from, to netip.Addr }

// link is a Link in use; guarded by the network's mu.
type link struct {
	Link
	busy time.Time // when it has sent all that it was given
}

// arrives returns when bytes that are sent now will have arrived; zero: at once.
func (l *link) arrives(bytes int) time.Time {
	if l == nil || l.Rate == 0 && l.Delay == 0 {
		return time.Time{}
	}
	now := time.Now()
	sent := now
	if l.Rate > 0 {
		if l.busy.After(now) {
			sent = l.busy
		}
		sent = sent.Add(time.Duration(float64(bytes) / float64(l.Rate) * float64(time.Second)))
		l.busy = sent
	}
	return sent.Add(l.Delay)
}

// Set replaces the link from one host to another. The way back is a link of its own.
func (n *Network) Set(from, to string, l Link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.links[pair{netip.MustParseAddr(from), netip.MustParseAddr(to)}] = &link{Link: l}
	n.wake()
}

// Cut disconnects a host from all others.
func (n *Network) Cut(ip string) { n.set(ip, true) }

// Join reconnects a host that Cut disconnected.
func (n *Network) Join(ip string) { n.set(ip, false) }

func (n *Network) set(ip string, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[netip.MustParseAddr(ip)] = cut
	n.wake()
}

// Reset breaks the connections between two hosts: both ends fail at once.
func (n *Network) Reset(a, b string) {
	x, y := netip.MustParseAddr(a), netip.MustParseAddr(b)
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.conns {
		if from, to := c.local.Addr(), c.remote.Addr(); from == x && to == y ||
			from == y && to == x {
			c.in.reset, c.out.reset = true, true
		}
	}
	n.wake()
}

// Kill ends a host as the end of its process does: its listeners, sockets and connections are gone,
// the other ends' calls fail, and all later calls of the Host too.
func (n *Network) Kill(h *Host) {
	n.mu.Lock()
	defer n.mu.Unlock()
	h.dead = true
	for c := range n.conns {
		if c.host == h {
			c.in.reset, c.out.reset = true, true
		}
	}
	for _, l := range n.streams {
		if l.host == h {
			l.end()
		}
	}
	for _, s := range n.packets {
		if s.host == h {
			s.end()
		}
	}
	n.wake()
}

// wake wakes all calls that wait; mu is held.
func (n *Network) wake() {
	n.changed.Broadcast()
	for c := range n.conns {
		c.in.changed.Broadcast()
		c.out.changed.Broadcast()
	}
}

// reaches reports whether what from sends arrives at to; mu is held.
func (n *Network) reaches(from, to netip.Addr) bool {
	if from == to {
		return true
	}
	l := n.links[pair{from, to}]
	return !n.cut[from] && !n.cut[to] && (l == nil || !l.Cut)
}

// loses reports whether a datagram is lost; mu is held.
func (n *Network) loses(from, to netip.Addr) bool {
	l := n.links[pair{from, to}]
	return !n.reaches(from, to) || l != nil && l.Loss > 0 && n.random.Float64() < l.Loss
}

// carried returns what arrives of what a connection sends; mu is held.
func (n *Network) carried(from, to netip.Addr, sent []byte) []byte {
	data := append([]byte(nil), sent...)
	if l := n.links[pair{from, to}]; l != nil && l.Flips > 0 && n.random.Float64() < l.Flips {
		data[n.random.IntN(len(data))] ^= 1 << n.random.IntN(8)
	}
	return data
}

// Open returns how many connections, listeners and sockets of a host are open.
func (n *Network) Open(h *Host) (conns, listeners, sockets int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.conns {
		if c.host == h {
			conns++
		}
	}
	for _, l := range n.streams {
		if l.host == h {
			listeners++
		}
	}
	for _, s := range n.packets {
		if s.host == h {
			sockets++
		}
	}
	return conns, listeners, sockets
}
