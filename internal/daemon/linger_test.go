package daemon

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/daemon/protocol"
	"github.com/hdmlp/hdmlp/internal/daemon/socket"
)

// TestDaemonLingersAfterTheLastConnection checks also that each new connection restarts the linger
// time.
func TestDaemonLingersAfterTheLastConnection(t *testing.T) {
	r := start(t, func(d *Daemon) { d.cfg.Linger = 300 * time.Millisecond })
	for range 3 {
		x := r.hello()
		x.close()
	}
	begin := time.Now()
	r.end()
	if took := time.Since(begin); took < 200*time.Millisecond {
		t.Errorf("the daemon stayed for %v, want 300 ms", took)
	}
}

// TestConnectionAtTheEndOfTheLingerTime checks that a process that got WELCOME is served although
// the linger time just ended, and that later connections are closed without WELCOME.
func TestConnectionAtTheEndOfTheLingerTime(t *testing.T) {
	r := start(t)
	x := r.hello()
	r.d.endIfIdle() // as by a timer that fires just before it is stopped
	if _, m := x.call("stats", "{}"); m != nil {
		t.Errorf("stats: %+v", m)
	}
	x.close()
	r.end()
	near, far := pair(t)
	r.d.serve(t.Context(), near)
	if n, err := far.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("a daemon that is leaving sent %d bytes, %v", n, err)
	}
	far.Close()
}

// TestStatusQueriesDoNotKeepTheDaemonAlive queries the status over and over.
func TestStatusQueriesDoNotKeepTheDaemonAlive(t *testing.T) {
	const linger = 300 * time.Millisecond
	r := start(t, func(d *Daemon) { d.cfg.Linger = linger })
	x := r.hello()
	x.open()
	x.close()
	limit := time.Now().Add(20 * time.Second)
	for looks := 0; ; looks++ {
		c, err := Dial(t.Context(), r.address, "test")
		if err == nil {
			err = c.Call([]string{"stats", "cluster"}[looks%2], nil, &struct{}{})
			c.Close()
		}
		if err != nil {
			t.Logf("it was gone after %d queries", looks)
			break
		}
		if time.Now().After(limit) {
			t.Fatalf("the daemon is still there after %d queries", looks)
		}
	}
	r.end()
}

func TestDescriptorErrorNamesNeedAndLimit(t *testing.T) {
	r := start(t)
	near, far := pair(t)
	r.d.rejectForFiles(near, unix.EMFILE)
	x := &client{t: t, c: far, maps: map[uint32][]byte{}}
	m := x.refused()
	if m.Kind != protocol.KindLimit ||
		m.Details["need"].(float64) != m.Details["limit"].(float64)+1 ||
		!strings.Contains(m.Message, "RLIMIT_NOFILE") {
		t.Errorf("%+v", m)
	}
	x.close()
	r.stop()
	r.end()
}

// pair returns a connected pair of sockets.
func pair(t testing.TB) (near, far *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socket")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = c.(*net.UnixConn)
	}
	return ends[0], ends[1]
}

// TestSecondDaemonIsNotAClient checks that when a daemon that lost the race for the socket connects
// to see which user owns it, the winner does not take that for its first client: although it would
// exit after its last connection, it still waits for the first one.
func TestSecondDaemonIsNotAClient(t *testing.T) {
	r := start(t)
	_, err := socket.Listen(socket.Endpoint{Addr: r.address})
	if !errors.Is(err, socket.ErrRunning) {
		t.Fatal(err)
	}
	deadline := time.Now().Add(5 * time.Second)
	for looked := false; !looked; { // the daemon has seen the end of that connection
		r.d.mu.Lock()
		looked = len(r.d.conns) == 0
		r.d.mu.Unlock()
		if time.Now().After(deadline) {
			t.Fatal("the connection does not end")
		}
		runtime.Gosched()
	}
	c, _, err := dial(t.Context(), r.address, "test")
	if err != nil {
		t.Fatalf("the daemon did not wait for its first process: %v", err)
	}
	c.Close()
	r.end()
}
