package daemon

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/daemon/protocol"
	"github.com/hdmlp/hdmlp/internal/daemon/socket"
)

// TestClientQueriesAndStopsTheDaemon makes the calls of commands while one job runs and another is
// being opened.
func TestClientQueriesAndStopsTheDaemon(t *testing.T) {
	r := start(t)
	x := r.hello()
	x.open()
	slow := r.hello()
	slow.json(protocol.Open,
		openMessage(func(m *protocol.OpenMessage) { m.Job, m.Dataset.Path = "slow", "/slow" }))
	c, err := Dial(t.Context(), r.address, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var stats Stats
	for len(stats.Jobs) < 2 { // until the second OPEN has arrived
		if err := c.Call("stats", nil, &stats); err != nil {
			t.Fatal(err)
		}
	}
	if stats.Connections != 2 || stats.PID != os.Getpid() || stats.Version != "test" {
		t.Errorf("stats %+v", stats)
	}
	if a, b := stats.Jobs[0], stats.Jobs[1]; a.Job != "j" || a.Assembling || b.Job != "slow" ||
		!b.Assembling || b.Dataset != "/slow" {
		t.Errorf("jobs %+v, %+v", a, b)
	}
	var over ClusterStats
	if err := c.Call("cluster", map[string]any{"job": "j"}, &over); err != nil ||
		len(over.Jobs) != 1 || over.Jobs[0].Job != "j" || len(over.Jobs[0].Nodes) != 1 {
		t.Errorf("job j over all nodes: %+v, %v", over, err)
	}
	over = ClusterStats{}
	if err := c.Call("cluster", nil, &over); err != nil || len(over.Jobs) != 2 ||
		!over.Jobs[1].Nodes[0].Assembling {
		t.Errorf("all jobs over all nodes: %+v, %v", over, err)
	}
	x.close()
	for len(stats.Jobs) > 1 {
		stats = Stats{}
		if err := c.Call("stats", nil, &stats); err != nil {
			t.Fatal(err)
		}
	}
	// The job that is being opened keeps the daemon busy as well.
	var busy *protocol.ErrorMessage
	if err := c.Call("shutdown", map[string]any{}, &struct{}{}); !errors.As(err, &busy) ||
		busy.Kind != protocol.KindBusy {
		t.Errorf("shutdown while a job is opened: %v", err)
	}
	if err := c.Call("shutdown", map[string]any{"force": true}, &struct{}{}); err != nil {
		t.Errorf("shutdown: %v", err)
	}
	for {
		if _, err := slow.receive(); err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, unix.ECONNRESET) {
				t.Errorf("the other process got %v", err)
			}
			break
		}
	}
	r.end()
	if _, err := Dial(t.Context(), r.address, "test"); err == nil ||
		!strings.Contains(err.Error(), "no daemon is running") {
		t.Errorf("dial after the end: %v", err)
	}
}

// TestDaemonOfAnotherVersionCanBeQueriedAndStopped checks also that other calls fail with an error
// that names both versions.
func TestDaemonOfAnotherVersionCanBeQueriedAndStopped(t *testing.T) {
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
	// If nothing listens at the first address, the second is tried.
	e = socket.Endpoint{
		Addr:  &net.UnixAddr{Name: filepath.Join(t.TempDir(), "none"), Net: "unix"},
		Other: r.address,
	}
	if _, err := Find(t.Context(), e, "9.9"); !isVersion(err) {
		t.Errorf("find at the second address: %v", err)
	}
	if err := Stop(t.Context(), e, "9.9", false); err != nil {
		t.Errorf("stop: %v", err)
	}
	r.end()
}

func TestClientReturnsWhenItsContextIsCancelled(t *testing.T) {
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

// TestADaemonThatDoesNotEndIsNamed: without a visible process, no command is shown that would end
// others.
func TestADaemonThatDoesNotEndIsNamed(t *testing.T) {
	for pid, want := range map[int]string{7: "`kill -KILL 7`", 0: "another PID namespace"} {
		err := (&Client{address: "/run/s", pid: pid}).notEnded().Error()
		if !strings.Contains(err, want) || !strings.Contains(err, "/run/s") ||
			strings.Contains(err, "KILL 0") {
			t.Errorf("%d: %s", pid, err)
		}
	}
}
