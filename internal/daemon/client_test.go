package daemon

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/daemon/socket"
)

// TestOtherVersion: a daemon of another version is named, and can be asked what it does, and to
// end.
func TestOtherVersion(t *testing.T) {
	r := start(t)
	e := socket.Endpoint{Addr: r.address}
	c, _, err := dial(t.Context(), r.address, "9.9")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := Find(t.Context(), e, "9.9"); !isVersion(err) ||
		!strings.Contains(err.Error(), "is hdmlp test") ||
		!strings.Contains(err.Error(), "is hdmlp 9.9") {
		t.Errorf("find: %v", err)
	}
	if err := c.Call("cluster", nil, &struct{}{}); !isVersion(err) {
		t.Errorf("cluster: %v", err)
	}
	if err := c.Call("stats", nil, &struct{}{}); err != nil {
		t.Errorf("stats: %v", err)
	}
	// Where nothing is at the first place, the second is looked at.
	e = socket.Endpoint{
		Addr:  &net.UnixAddr{Name: filepath.Join(t.TempDir(), "none"), Net: "unix"},
		Other: r.address,
	}
	if _, err := Find(t.Context(), e, "9.9"); !isVersion(err) {
		t.Errorf("find at the second place: %v", err)
	}
	if err := Stop(t.Context(), e, "9.9", false); err != nil {
		t.Errorf("stop: %v", err)
	}
	r.end()
}

// TestCancelledClient: a client that waits for an answer ends with its context.
func TestCancelledClient(t *testing.T) {
	address := &net.UnixAddr{Name: filepath.Join(t.TempDir(), "silent"), Net: "unix"}
	l, err := net.ListenUnix("unix", address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := Find(ctx, socket.Endpoint{Addr: address}, "test")
		ended <- err
	}()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
}
