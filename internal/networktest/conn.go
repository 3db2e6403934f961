package networktest

import (
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
)

const (
	wayBytes    = 256 << 10 // buffer of a connection, each way
	socketHolds = 1000      // datagrams that a socket buffers
)

// way is one direction of a connection; guarded by the network's mu.
type way struct {
	data  []byte // written and not yet read
	ended bool   // the writing end has closed
	deaf  bool   // the reading end has closed
}

// conn is one end of a connection; closed and the deadlines are guarded by the network's mu.
type conn struct {
	network       *Network
	local, remote netip.AddrPort
	in, out       *way
	closed        bool
	read, write   deadline
}

func (c *conn) Read(b []byte) (int, error) {
	n := c.network
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		switch arrives := n.reaches(c.remote.Addr(), c.local.Addr()); {
		case c.closed:
			return 0, c.failed("read", net.ErrClosed)
		case c.read.passed():
			return 0, c.failed("read", os.ErrDeadlineExceeded)
		case len(b) == 0:
			return 0, nil
		case arrives && len(c.in.data) > 0:
			got := copy(b, c.in.data)
			c.in.data = c.in.data[got:]
			n.changed.Broadcast()
			return got, nil
		case arrives && c.in.ended:
			return 0, io.EOF
		}
		n.changed.Wait()
	}
}

func (c *conn) Write(b []byte) (written int, err error) {
	n := c.network
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		switch arrives := n.reaches(c.local.Addr(), c.remote.Addr()); {
		case c.closed:
			return written, c.failed("write", net.ErrClosed)
		case c.write.passed():
			return written, c.failed("write", os.ErrDeadlineExceeded)
		case arrives && c.out.deaf:
			return written, c.failed("write", os.NewSyscallError("write", syscall.EPIPE))
		case len(b) == 0:
			return written, nil
		}
		if room := min(wayBytes-len(c.out.data), len(b)); room > 0 {
			c.out.data = append(c.out.data, b[:room]...)
			b, written = b[room:], written+room
			n.changed.Broadcast()
			continue
		}
		n.changed.Wait()
	}
}

func (c *conn) failed(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}

func (c *conn) Close() error {
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	if c.closed {
		return c.failed("close", net.ErrClosed)
	}
	c.end()
	return nil
}

// end closes this end; mu is held.
func (c *conn) end() {
	c.closed, c.out.ended, c.in.deaf = true, true, true
	c.network.changed.Broadcast()
}

func (c *conn) LocalAddr() net.Addr  { return net.TCPAddrFromAddrPort(c.local) }
func (c *conn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.remote) }

func (c *conn) SetDeadline(t time.Time) error {
	c.read.set(c.network, t)
	c.write.set(c.network, t)
	return nil
}

func (c *conn) SetReadDeadline(t time.Time) error  { c.read.set(c.network, t); return nil }
func (c *conn) SetWriteDeadline(t time.Time) error { c.write.set(c.network, t); return nil }

// socket sends and receives datagrams; closed, queue and read are guarded by the network's mu.
type socket struct {
	network *Network
	at      netip.AddrPort
	closed  bool
	queue   []datagram
	read    deadline
}

type datagram struct {
	data []byte
	from netip.AddrPort
}

func (s *socket) ReadFrom(b []byte) (int, net.Addr, error) {
	n := s.network
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
		n.changed.Wait()
	}
}

func (s *socket) WriteTo(b []byte, address net.Addr) (int, error) {
	to, err := netip.ParseAddrPort(address.String())
	if err != nil {
		return 0, err
	}
	n := s.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if s.closed {
		return 0, net.ErrClosed
	}
	if at := n.packets[to]; at != nil && len(at.queue) < socketHolds &&
		n.reaches(s.at.Addr(), to.Addr()) {
		at.queue = append(at.queue, datagram{append([]byte(nil), b...), s.at})
		n.changed.Broadcast()
	}
	return len(b), nil
}

func (s *socket) Close() error {
	n := s.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	s.closed = true
	delete(n.packets, s.at)
	n.changed.Broadcast()
	return nil
}

func (s *socket) LocalAddr() net.Addr                { return net.UDPAddrFromAddrPort(s.at) }
func (s *socket) SetReadDeadline(t time.Time) error  { s.read.set(s.network, t); return nil }
func (s *socket) SetDeadline(t time.Time) error      { return s.SetReadDeadline(t) }
func (s *socket) SetWriteDeadline(_ time.Time) error { return nil } // a datagram never waits
