// Package networktest simulates a network in memory. Its hosts listen, connect and send datagrams
// like those of a real one, with the same errors, and a host can be disconnected from the others
// and reconnected. So a test can run several nodes in one process and, in a testing/synctest
// bubble, in virtual time.
//
// A connection has a buffer each way and delivers at once what the other end has written, unless
// the link between the hosts is set otherwise (Link): links delay, limit, cut one way and lose.
// While either end is disconnected nothing arrives, not even that the other end has closed. Nothing
// is lost but datagrams: those to a disconnected host, to a port without a listener, over a
// socket's buffer, and those that a link loses. Connections break if they are reset (Reset), or
// with their host (Kill).
//
// The package starts no goroutine but timers. All methods are safe for concurrent use.
package networktest

import (
	"context"
	"fmt"
	"math/rand/v2"
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
	changed *sync.Cond // links or hosts have changed; calls that wait for a host wait here
	ports   uint16     // the last port that was chosen
	streams map[netip.AddrPort]*listener
	packets map[netip.AddrPort]*socket
	conns   map[*conn]bool // those that are open
	cut     map[netip.Addr]bool
	links   map[pair]*link
	delay   time.Duration // between hosts without a link
	cards   map[netip.Addr]*card
	random  *rand.Rand // decides which datagrams are lost
}

// New returns a network without hosts.
func New() *Network {
	n := &Network{
		ports:   40000,
		streams: map[netip.AddrPort]*listener{}, packets: map[netip.AddrPort]*socket{},
		conns: map[*conn]bool{},
		cut:   map[netip.Addr]bool{}, links: map[pair]*link{}, cards: map[netip.Addr]*card{},
		random: rand.New(rand.NewPCG(0, 0)),
	}
	n.changed = sync.NewCond(&n.mu)
	return n
}

// Host is one host of the network, with one address, from when it starts until it is killed.
type Host struct {
	network *Network
	ip      netip.Addr
	dead    bool // guarded by the network's mu
}

// Host returns the host with an IP address. After Kill it is the host that was started again.
func (n *Network) Host(ip string) *Host {
	return &Host{network: n, ip: netip.MustParseAddr(ip)}
}

// bind returns the address that host:port means to the host; taken reports whether an address is in
// use. mu is held.
func (h *Host) bind(address string, taken func(netip.AddrPort) bool) (netip.AddrPort, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if h.dead {
		return netip.AddrPort{}, syscall.ENETDOWN
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
	l := &listener{host: h, at: at, changed: sync.NewCond(&n.mu)}
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
	// A connection takes an answer, so both ways must be open.
	for ctx.Err() == nil && !h.dead && !(n.reaches(h.ip, to.Addr()) && n.reaches(to.Addr(), h.ip)) {
		n.changed.Wait()
	}
	switch {
	case h.dead:
		return nil, failed(os.NewSyscallError("connect", syscall.ENETDOWN))
	case ctx.Err() != nil:
		return nil, failed(fmt.Errorf("i/o timeout: %w", ctx.Err()))
	}
	l := n.streams[to]
	if l == nil {
		return nil, failed(os.NewSyscallError("connect", syscall.ECONNREFUSED))
	}
	n.ports++
	from := netip.AddrPortFrom(h.ip, n.ports)
	up, down := n.way(h.ip, to.Addr()), n.way(to.Addr(), h.ip)
	near := &conn{host: h, local: from, remote: to, in: down, out: up}
	far := &conn{host: l.host, local: to, remote: from, in: up, out: down}
	n.conns[near], n.conns[far] = true, true
	l.waiting = append(l.waiting, far)
	l.changed.Broadcast()
	return near, nil
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
	s := &socket{host: h, at: at, changed: sync.NewCond(&n.mu)}
	n.packets[at] = s
	return s, nil
}

// listener accepts connections; closed and waiting are guarded by the network's mu.
type listener struct {
	host    *Host
	at      netip.AddrPort
	changed *sync.Cond
	closed  bool
	waiting []*conn
}

func (l *listener) Accept() (net.Conn, error) {
	n := l.host.network
	n.mu.Lock()
	defer n.mu.Unlock()
	for !l.closed && len(l.waiting) == 0 {
		l.changed.Wait()
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
	n := l.host.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if l.closed {
		return net.ErrClosed
	}
	l.end()
	return nil
}

// end is Close without the check; mu is held.
func (l *listener) end() {
	l.closed = true
	delete(l.host.network.streams, l.at)
	for _, c := range l.waiting {
		c.end()
	}
	l.changed.Broadcast()
}

func (l *listener) Addr() net.Addr { return net.TCPAddrFromAddrPort(l.at) }

// deadline is when a blocked call times out; zero means never.
type deadline struct {
	at    time.Time
	timer *time.Timer // wakes blocked calls when it passes; nil: none was needed yet
}

// set sets the deadline; changed is what blocked calls wait for. mu, which changed uses, is held.
func (d *deadline) set(changed *sync.Cond, at time.Time) {
	d.at = at
	changed.Broadcast()
	left := time.Until(at)
	switch {
	case at.IsZero() || left <= 0:
		if d.timer != nil {
			d.timer.Stop()
		}
	case d.timer == nil:
		d.timer = time.AfterFunc(left, func() {
			changed.L.Lock()
			defer changed.L.Unlock()
			changed.Broadcast()
		})
	default:
		d.timer.Reset(left)
	}
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }
