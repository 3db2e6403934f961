package link

import (
	"errors"
	"net"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/peers/exchange/wire"
)

// TestReaderIsWokenForAHeaderAfterAPayload: while the rest of a payload is awaited, the socket is
// ready only when much of it has arrived. For a header, which is shorter, it must be ready at once.
func TestReaderIsWokenForAHeaderAfterAPayload(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	const length = 2 * lowatSize
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	peer, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	in := newInlet(conn)
	read := make(chan error)
	go func() { read <- in.payload(&call{dst: make([]byte, length), length: length}, length) }()
	send := func(n int) {
		if _, err := peer.Write(make([]byte, n)); err != nil {
			t.Error(err)
		}
	}
	send(length / 2)
	for lowat(t, in.raw) == 1 { // the reader has yet to find that there is no more
		runtime.Gosched()
	}
	send(length / 2)
	if err := <-read; err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now())
	if _, err := in.peek(wire.HeaderSize); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("there is no header yet: %v", err)
	}
	if n := lowat(t, in.raw); n != 1 {
		t.Errorf("with a header, the reader is woken at %d bytes", n)
	}
}

// lowat returns how many bytes must have arrived for a socket to be ready.
func lowat(t *testing.T, raw syscall.RawConn) (n int) {
	t.Helper()
	err := raw.Control(func(fd uintptr) {
		var err error
		if n, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
