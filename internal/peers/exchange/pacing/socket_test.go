package pacing

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/lab/devcluster"
)

// TestKernelHasTheLimit sends over a link of 20 Mbit/s, whose rate the kernel must come to know.
func TestKernelHasTheLimit(t *testing.T) {
	const rate = 2.5e6 // bytes/s
	c, err := devcluster.New(devcluster.Options{
		Nodes: 2, Link: devcluster.LinkState{Rate: 8 * rate},
	})
	if err != nil {
		t.Skipf("no network namespaces here: %v", err)
	}
	defer c.Close()
	if why := c.OnLoopback(); why != nil {
		t.Skipf("no network namespaces here: %v", why)
	}
	var listener net.Listener
	if err := c.Node(1).Do(func() (err error) {
		listener, err = net.Listen("tcp", c.Node(1).Address()+":0")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var conn net.Conn
	if err := c.Node(0).Do(func() (err error) {
		conn, err = net.DialTimeout("tcp", listener.Addr().String(), 10*time.Second)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fillsBuffers(t, conn.(*net.TCPConn))
	other, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	received := make(chan int64)
	go func() {
		n, _ := io.Copy(io.Discard, other)
		received <- n
	}()
	s, sent := Of(conn, 96<<10), 0
	for sent < 4<<20 {
		s.Adjust(time.Now())
		n, err := conn.Write(make([]byte, s.Burst(1<<20)))
		if err != nil {
			t.Fatal(err)
		}
		sent += n
	}
	if got := limit(t, conn.(*net.TCPConn)); got < rate/16 || got > 2*rate {
		t.Errorf("the limit is %d bytes/s, on a link of %g", got, rate)
	}
	conn.Close()
	if n := <-received; n != int64(sent) {
		t.Errorf("%d of %d bytes were received", n, sent)
	}
}

// fillsBuffers gives a connection a congestion control that looks for loss.
func fillsBuffers(t *testing.T, conn *net.TCPConn) {
	raw, err := conn.SyscallConn()
	if err == nil {
		var failed error
		err = raw.Control(func(fd uintptr) {
			failed = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, "reno")
		})
		err = errors.Join(err, failed)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// limit returns how fast the kernel lets a connection send, in bytes/s.
func limit(t *testing.T, conn *net.TCPConn) (rate uint64) {
	raw, err := conn.SyscallConn()
	if err == nil {
		var failed error
		err = raw.Control(func(fd uintptr) {
			var v int
			v, failed = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE)
			rate = uint64(uint32(v))
		})
		err = errors.Join(err, failed)
	}
	if err != nil {
		t.Fatal(err)
	}
	return rate
}

// TestOtherConnectionsAreNotPaced has a pipe in the place of a TCP connection.
func TestOtherConnectionsAreNotPaced(t *testing.T) {
	one, other := net.Pipe()
	defer one.Close()
	defer other.Close()
	s := Of(one, 1)
	if s.Adjust(time.Now()); s.Burst(7) != 7 {
		t.Error("a pipe is paced")
	}
}
