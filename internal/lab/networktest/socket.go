package networktest

import (
	"net"
	"net/netip"
	"os"
	"sync"
	"time"
)

const socketHolds = 1000 // datagrams that a socket buffers

// socket sends and receives datagrams; closed, queue and read are guarded by the network's mu.
type socket struct {
	host    *Host
	at      netip.AddrPort
	changed *sync.Cond
	closed  bool
	queue   []datagram
	read    deadline
}

type datagram struct {
	data []byte
	from netip.AddrPort
}

func (s *socket) ReadFrom(b []byte) (int, net.Addr, error) {
	n := s.host.network
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		switch {
		case s.closed:
			return 0, nil, net.ErrClosed
		case s.read.passed():
			return 0, nil, os.ErrDeadlineExceeded
		case len(s.queue) > 0:
			d := s.queue[0]
			s.queue = s.queue[1:]
			return copy(b, d.data), net.UDPAddrFromAddrPort(d.from), nil
		}
		s.changed.Wait()
	}
}

func (s *socket) WriteTo(b []byte, address net.Addr) (int, error) {
	to, err := netip.ParseAddrPort(address.String())
	if err != nil {
		return 0, err
	}
	n := s.host.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if s.closed {
		return 0, net.ErrClosed
	}
	if n.loses(s.at.Addr(), to.Addr()) {
		return len(b), nil
	}
	d := datagram{append([]byte(nil), b...), s.at}
	at := n.carries(s.at.Addr(), to.Addr(), len(b))
	if left := time.Until(at); !at.IsZero() && left > 0 {
		time.AfterFunc(left, func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.deliver(to, d)
		})
	} else {
		n.deliver(to, d)
	}
	return len(b), nil
}

// deliver gives a datagram to the socket at to, if there is one that has room; mu is held.
func (n *Network) deliver(to netip.AddrPort, d datagram) {
	if at := n.packets[to]; at != nil && len(at.queue) < socketHolds {
		at.queue = append(at.queue, d)
		at.changed.Broadcast()
	}
}

func (s *socket) Close() error {
	n := s.host.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	s.end()
	return nil
}

// end is Close without the check; mu is held.
func (s *socket) end() {
	s.closed = true
	if s.read.timer != nil {
		s.read.timer.Stop()
	}
	delete(s.host.network.packets, s.at)
	s.changed.Broadcast()
}

func (s *socket) LocalAddr() net.Addr { return net.UDPAddrFromAddrPort(s.at) }

func (s *socket) SetReadDeadline(t time.Time) error {
	s.host.network.mu.Lock()
	defer s.host.network.mu.Unlock()
	s.read.set(s.changed, t)
	return nil
}

func (s *socket) SetDeadline(t time.Time) error      { return s.SetReadDeadline(t) }
func (s *socket) SetWriteDeadline(_ time.Time) error { return nil } // a datagram never waits
