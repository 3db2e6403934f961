// Package networktest is a network in memory. Its hosts listen, connect and send datagrams as those
// of a real one do, with the same errors, and a host can be cut off from the others and joined to
// them again. So tests run several nodes in one process, and, in a bubble of testing/synctest, in
// virtual time.
//
// A connection has a buffer each way and delivers at once what the other end has written; while
// either end is cut off, nothing arrives, not even that the other end has closed. Nothing is lost
// but datagrams: to a host that is cut off, to a port at which nothing listens, and beyond what a
// socket holds.
//
// The package starts no goroutine. All methods may be called by many.
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

// Network is some hosts that reach each other.
type Network struct {
	mu      sync.Mutex // guards all that the network consists of
	changed *sync.Cond // any of it has changed
	ports   uint16     // the last that was chosen
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

// Cut cuts a host off from all others.
func (n *Network) Cut(ip string) { n.set(ip, true) }

// Join takes Cut back.
func (n *Network) Join(ip string) { n.set(ip, false) }

func (n *Network) set(ip string, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[netip.MustParseAddr(ip)] = cut
	n.changed.Broadcast()
}

// reaches reports whether what one address sends arrives at another; under mu.
func (n *Network) reaches(from, to netip.Addr) bool {
	return from == to || !n.cut[from] && !n.cut[to]
}

// Host is one address of the network.
type Host struct {
	network *Network
	ip      netip.Addr
}

// Host returns the host of an IP address.
func (n *Network) Host(ip string) *Host { return &Host{n, netip.MustParseAddr(ip)} }

// bind finds the address that a host means by host:port; taken reports whether that is in use.
// Under mu.
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

// Listen takes connections to host:port; the host may be empty or unspecified, and port 0 is any.
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

// Dial connects to host:port. It ends with ctx; without a listener there it is refused.
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

// ListenPacket takes datagrams to host:port, as Listen does connections.
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

// Close ends connections that were not accepted.
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

// deadline is when a call ends; zero: never.
type deadline struct{ at time.Time }

// set moves it, and wakes those who wait then.
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
