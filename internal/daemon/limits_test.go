package daemon

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/daemon/protocol"
)

// TestFailedCallsReleaseTheirSlots checks that the limit is on pending calls: there may be any
// number of calls one after the other, whether or not they fail.
func TestFailedCallsReleaseTheirSlots(t *testing.T) {
	r := start(t)
	x := r.hello()
	for range 2 * maxCalls {
		if _, failure := x.call("dance", "{}"); failure == nil {
			t.Error("an unknown method succeeded")
		}
		if _, failure := x.call("stats", "{}"); failure != nil {
			t.Error(failure)
		}
	}
	x.close()
	r.end()
}

// exhausted is a listener with one connection, for which there is no file descriptor at first.
type exhausted struct {
	conn    *net.UnixConn
	accepts int
}

func (c *exhausted) Close() error { return nil }

func (c *exhausted) AcceptUnix() (*net.UnixConn, error) {
	switch c.accepts++; c.accepts {
	case 1:
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", unix.EMFILE)}
	case 2:
		return c.conn, nil
	}
	return nil, net.ErrClosed
}

// TestProcessGetsAnErrorWhenDescriptorsAreExhausted checks also that the daemon then continues to
// accept.
func TestProcessGetsAnErrorWhenDescriptorsAreExhausted(t *testing.T) {
	r := start(t)
	near, far := pair(t)
	l := &exhausted{conn: near}
	if err := r.d.accept(t.Context(), l, func(*net.UnixConn) {
		t.Error("it was served")
	}); err != nil || l.accepts != 3 {
		t.Errorf("after %d connections: %v", l.accepts, err)
	}
	x := &client{t: t, c: far, maps: map[uint32][]byte{}}
	if m := x.refused(); m.Kind != protocol.KindLimit {
		t.Errorf("%+v", m)
	}
	x.close()
	r.stop()
	r.end()
}

func TestClientRejectsFramesOverTheLimit(t *testing.T) {
	address := &net.UnixAddr{Name: filepath.Join(t.TempDir(), "liar"), Net: "unix"}
	l, err := net.ListenUnix("unix", address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ended := make(chan error, 1)
	go func() {
		c, err := Dial(t.Context(), address, "test")
		if err == nil {
			c.Close()
		}
		ended <- err
	}()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, _, err := protocol.ReadFrame(conn, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte{1, 0, 0, 1, byte(protocol.Welcome), 0, 0, 0}); err != nil {
		t.Fatal(err)
	}
	conn.(*net.UnixConn).CloseWrite()
	if err := <-ended; !errors.Is(err, protocol.ErrProtocol) ||
		errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
}
