// Package networktest simulates a network in memory. Its hosts listen, connect and send datagrams
// like those of a real one, with the same errors, and a host can be disconnected from the others
// and reconnected. So a test can run several nodes in one process and, in a testing/synctest
// bubble, in virtual time.
//
// A connection has a buffer each way and delivers at once what the other end has written. While
// either end is disconnected nothing arrives, not even that the other end has closed. Nothing is
// lost but datagrams: those to a disconnected host, to a port without a listener, and over a
// socket's buffer.
//
// The package starts no goroutine. All methods are safe for concurrent use.
package networktest

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"
)

// Network is a set of hosts that reach each other.
type Network struct {
	mu      sync.Mutex // guards the state of the network and of all that belongs to it
	changed *sync.Cond // the state has changed
	ports   uint16     // the last port that was chosen
	streams map[netip.AddrPort]*listener
	packets map[netip.AddrPort]*socket
	cut     map[netip.Addr]bool
}

// New returns a network without hosts.
func New() *Network {
	n := &Network{
		ports:   40000,
		streams: map[netip.AddrPort]*listener{}, packets: map[netip.AddrPort]*socket{},
		cut: map[netip.Addr]bool{},
	}
	n.changed = sync.NewCond(&n.mu)
	return n
}

// Cut disconnects a host from all others.
func (n *Network) Cut(ip string) { n.set(ip, true) }

// Join reconnects a host that Cut disconnected.
func (n *Network) Join(ip string) { n.set(ip, false) }

func (n *Network) set(ip string, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[netip.MustParseAddr(ip)] = cut
	n.changed.Broadcast()
}

// reaches reports whether what from sends arrives at to; mu is held.
func (n *Network) reaches(from, to netip.Addr) bool {
	return from == to || !n.cut[from] && !n.cut[to]
}

// Host is one host of the network, with one address.
type Host struct {
	network *Network
	ip      netip.Addr
}

// Host returns the host with an IP address.
func (n *Network) Host(ip string) *Host { return &Host{n, netip.MustParseAddr(ip)} }

// bind returns the address that host:port means to the host; taken reports whether an address is in
// use. mu is held.
func (h *Host) bind(address string, taken func(netip.AddrPort) bool) (netip.AddrPort, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if ip, err := netip.ParseAddr(host); host != "" &&
		(err != nil || ip != h.ip && !ip.IsUnspecified()) {
		return netip.AddrPort{}, syscall.EADDRNOTAVAIL
	}
	at, err := netip.ParseAddrPort(net.JoinHostPort(h.ip.String(), port))
	if err != nil {
		return at, err
	}
	for at.Port() == 0 || port == "0" && taken(at) {
		h.network.ports++
		at = netip.AddrPortFrom(h.ip, h.network.ports)
	}
	if taken(at) {
		return at, syscall.EADDRINUSE
	}
	return at, nil
}

// Listen listens for connections on host:port; the host may be empty or unspecified, and port 0 is
// any free port.
func (h *Host) Listen(address string) (net.Listener, error) {
	n := h.network
	n.mu.Lock()
	defer n.mu.Unlock()
	at, err := h.bind(address, func(at netip.AddrPort) bool { return n.streams[at] != nil })
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Err: os.NewSyscallError("bind", err)}
	}
	l := &listener{network: n, at: at}
	n.streams[at] = l
	return l, nil
}

// Dial connects to host:port; it gives up when ctx ends. Without a listener it is refused.
func (h *Host) Dial(ctx context.Context, address string) (net.Conn, error) {
	n := h.network
	failed := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, failed(err)
	}
	stop := context.AfterFunc(ctx, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.changed.Broadcast()
	})
	defer stop()
	n.mu.Lock()
	defer n.mu.Unlock()
	for ctx.Err() == nil && !n.reaches(h.ip, to.Addr()) {
		n.changed.Wait()
	}
	if ctx.Err() != nil {
		return nil, failed(fmt.Errorf("i/o timeout: %w", ctx.Err()))
	}
	l := n.streams[to]
	if l == nil {
		return nil, failed(os.NewSyscallError("connect", syscall.ECONNREFUSED))
	}
	n.ports++
	from := netip.AddrPortFrom(h.ip, n.ports)
	up, down := &way{}, &way{}
	l.waiting = append(l.waiting, &conn{network: n, local: to, remote: from, in: up, out: down})
	n.changed.Broadcast()
	return &conn{network: n, local: from, remote: to, in: down, out: up}, nil
}

// ListenPacket listens for datagrams on host:port, as Listen does for connections.
func (h *Host) ListenPacket(address string) (net.PacketConn, error) {
	n := h.network
	n.mu.Lock()
	defer n.mu.Unlock()
	at, err := h.bind(address, func(at netip.AddrPort) bool { return n.packets[at] != nil })
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: "udp", Err: os.NewSyscallError("bind", err)}
	}
	s := &socket{network: n, at: at}
	n.packets[at] = s
	return s, nil
}

// listener accepts connections; closed and waiting are guarded by the network's mu.
type listener struct {
	network *Network
	at      netip.AddrPort
	closed  bool
	waiting []*conn
}

func (l *listener) Accept() (net.Conn, error) {
	n := l.network
	n.mu.Lock()
	defer n.mu.Unlock()
	for !l.closed && len(l.waiting) == 0 {
		n.changed.Wait()
	}
	if l.closed {
		return nil, net.ErrClosed
	}
	c := l.waiting[0]
	l.waiting = l.waiting[1:]
	return c, nil
}

// Close stops listening and ends the connections that were not accepted.
func (l *listener) Close() error {
	n := l.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if l.closed {
		return net.ErrClosed
	}
	l.closed = true
	delete(n.streams, l.at)
	for _, c := range l.waiting {
		c.end()
	}
	n.changed.Broadcast()
	return nil
}

func (l *listener) Addr() net.Addr { return net.TCPAddrFromAddrPort(l.at) }

// deadline is when a blocked call times out; zero means never.
type deadline struct{ at time.Time }

// set sets the deadline, and wakes blocked calls when it passes.
func (d *deadline) set(n *Network, at time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	d.at = at
	n.changed.Broadcast()
	if left := time.Until(at); !at.IsZero() && left > 0 {
		time.AfterFunc(left, func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.changed.Broadcast()
		})
	}
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }
