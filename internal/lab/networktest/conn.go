package networktest

import (
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"
)

const wayBytes = 256 << 10 // buffer of a connection, each way

// way is one direction of a connection; guarded by the network's mu.
type way struct {
	network  *Network
	from, to netip.Addr
	changed  *sync.Cond
	chunks   []chunk // written and not yet read
	size     int     // bytes in chunks
	deaf     bool    // the reading end has closed
	reset    bool    // the connection is broken
}

// chunk is a piece of what was written.
type chunk struct {
	data []byte
	end  bool      // the writing end has closed
	at   time.Time // when it arrives; zero: it has
}

// way returns a direction of a new connection.
func (n *Network) way(from, to netip.Addr) *way {
	return &way{network: n, from: from, to: to, changed: sync.NewCond(&n.mu)}
}

// send adds a chunk; mu is held.
func (w *way) send(c chunk) {
	c.at = w.network.carries(w.from, w.to, len(c.data))
	if last := len(w.chunks) - 1; last >= 0 && c.at.Before(w.chunks[last].at) {
		c.at = w.chunks[last].at // bytes stay in order if the link has become faster
	}
	w.chunks = append(w.chunks, c)
	w.size += len(c.data)
	if left := time.Until(c.at); !c.at.IsZero() && left > 0 {
		time.AfterFunc(left, w.wake)
		return
	}
	w.changed.Broadcast()
}

func (w *way) wake() {
	w.network.mu.Lock()
	defer w.network.mu.Unlock()
	w.changed.Broadcast()
}

// arrived reports whether there is something to read; mu is held.
func (w *way) arrived() bool {
	return len(w.chunks) > 0 && !w.chunks[0].at.After(time.Now()) && w.network.reaches(w.from, w.to)
}

// conn is one end of a connection; closed and the deadlines are guarded by the network's mu.
type conn struct {
	host          *Host
	local, remote netip.AddrPort
	in, out       *way
	closed        bool
	read, write   deadline
}

func (c *conn) Read(b []byte) (int, error) {
	n := c.host.network
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		switch {
		case c.closed:
			return 0, c.failed("read", net.ErrClosed)
		case c.read.passed():
			return 0, c.failed("read", os.ErrDeadlineExceeded)
		case c.in.reset:
			return 0, c.failed("read", os.NewSyscallError("read", syscall.ECONNRESET))
		case len(b) == 0:
			return 0, nil
		case c.in.arrived():
			first := &c.in.chunks[0]
			if first.end {
				return 0, io.EOF
			}
			got := copy(b, first.data)
			if first.data = first.data[got:]; len(first.data) == 0 {
				c.in.chunks = c.in.chunks[1:]
			}
			c.in.size -= got
			c.in.changed.Broadcast()
			return got, nil
		}
		c.in.changed.Wait()
	}
}

func (c *conn) Write(b []byte) (written int, err error) {
	n := c.host.network
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		switch answers := n.reaches(c.remote.Addr(), c.local.Addr()); {
		case c.closed:
			return written, c.failed("write", net.ErrClosed)
		case c.write.passed():
			return written, c.failed("write", os.ErrDeadlineExceeded)
		case c.out.reset:
			return written, c.failed("write", os.NewSyscallError("write", syscall.ECONNRESET))
		case answers && c.out.deaf:
			return written, c.failed("write", os.NewSyscallError("write", syscall.EPIPE))
		case len(b) == 0:
			return written, nil
		}
		if room := min(wayBytes-c.out.size, len(b)); room > 0 {
			c.out.send(chunk{data: n.carried(c.out.from, c.out.to, b[:room])})
			b, written = b[room:], written+room
			continue
		}
		c.out.changed.Wait()
	}
}

func (c *conn) failed(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}

func (c *conn) Close() error {
	n := c.host.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if c.closed {
		return c.failed("close", net.ErrClosed)
	}
	c.end()
	return nil
}

// end closes this end; mu is held.
func (c *conn) end() {
	c.closed, c.in.deaf = true, true
	c.out.send(chunk{end: true})
	delete(c.host.network.conns, c)
	for _, d := range []*deadline{&c.read, &c.write} {
		if d.timer != nil {
			d.timer.Stop()
		}
	}
	c.in.changed.Broadcast()
	c.out.changed.Broadcast()
}

func (c *conn) LocalAddr() net.Addr  { return net.TCPAddrFromAddrPort(c.local) }
func (c *conn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.remote) }

func (c *conn) SetDeadline(t time.Time) error {
	_ = c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.host.network.mu.Lock()
	defer c.host.network.mu.Unlock()
	c.read.set(c.in.changed, t)
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.host.network.mu.Lock()
	defer c.host.network.mu.Unlock()
	c.write.set(c.out.changed, t)
	return nil
}
