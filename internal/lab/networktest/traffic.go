package networktest

import (
	"net/netip"
	"time"
)

// Traffic is what a host has sent to other hosts, or received from them. A message is a write to a
// connection, or a datagram; what the end of a connection takes is not counted.
type Traffic struct {
	Messages int64
	Bytes    int64
}

// Sub returns what has come since before.
func (t Traffic) Sub(before Traffic) Traffic {
	return Traffic{t.Messages - before.Messages, t.Bytes - before.Bytes}
}

// card is a host's network interface; guarded by the network's mu.
type card struct {
	sent, received Traffic
	rate           int64     // bytes per second, each way; 0: no limit
	out, in        time.Time // when it has sent, and received, all that it was given
}

// Traffic returns what a host has sent and received so far.
func (n *Network) Traffic(ip string) (sent, received Traffic) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.card(netip.MustParseAddr(ip))
	return c.sent, c.received
}

// Limit sets how many bytes per second a host can send, and how many it can receive, over all its
// connections and datagrams. 0 means no limit.
func (n *Network) Limit(ip string, rate int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.card(netip.MustParseAddr(ip)).rate = rate
}

// Delay sets how long data travels between hosts without a Link of their own.
func (n *Network) Delay(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.delay = d
}

// card returns a host's interface; mu is held.
func (n *Network) card(ip netip.Addr) *card {
	c := n.cards[ip]
	if c == nil {
		c = new(card)
		n.cards[ip] = c
	}
	return c
}

// carries counts data that one host sends to another, and returns when it will have arrived; zero:
// at once. mu is held.
func (n *Network) carries(from, to netip.Addr, bytes int) (at time.Time) {
	if l := n.links[pair{from, to}]; l != nil {
		at = l.arrives(bytes)
	} else if n.delay > 0 {
		at = time.Now().Add(n.delay)
	}
	if from == to || bytes == 0 {
		return at
	}
	a, b := n.card(from), n.card(to)
	for _, t := range []*Traffic{&a.sent, &b.received} {
		t.Messages++
		t.Bytes += int64(bytes)
	}
	return later(at, later(pass(&a.out, a.rate, bytes), pass(&b.in, b.rate, bytes)))
}

// pass returns when an interface that was busy until then has passed on bytes, which it is busy
// until now; zero: at once.
func pass(busy *time.Time, rate int64, bytes int) time.Time {
	if rate == 0 {
		return time.Time{}
	}
	*busy = later(*busy, time.Now())
	*busy = busy.Add(time.Duration(float64(bytes) / float64(rate) * float64(time.Second)))
	return *busy
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
