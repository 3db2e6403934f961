package daemon

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/daemon/protocol"
	"github.com/hdmlp/hdmlp/internal/store/memory"
)

// sendFiles sends n descriptors with a call that takes none.
func (x *client) sendFiles(n int) {
	x.t.Helper()
	frame, err := protocol.AppendJSON(nil, protocol.Call,
		protocol.CallMessage{ID: 1, Method: "stats"})
	if err != nil {
		x.t.Fatal(err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		x.t.Fatal(err)
	}
	defer null.Close()
	var fds []int
	for range n {
		fds = append(fds, int(null.Fd()))
	}
	if _, _, err := x.c.WriteMsgUnix(frame, unix.UnixRights(fds...), nil); err != nil {
		x.t.Fatal(err)
	}
}

// TestUnexpectedDescriptorsEndTheConnection checks that a process cannot exhaust the daemon's
// descriptors, neither gradually nor with more at once than the daemon receives.
func TestUnexpectedDescriptorsEndTheConnection(t *testing.T) {
	r := start(t)
	stays := r.hello()
	for name, c := range map[string]struct {
		counts []int
		words  string
	}{
		"gradually": {
			[]int{maxPendingFiles / 2, maxPendingFiles / 2, 1},
			"file descriptors belong to no frame",
		},
		"at once": {[]int{3 * maxPendingFiles}, "file descriptors were lost in transit"},
	} {
		t.Run(name, func(t *testing.T) {
			x := r.hello()
			x.t = t
			for _, n := range c.counts {
				x.sendFiles(n)
			}
			if m := x.refused(); m.Kind != protocol.KindProtocol ||
				!strings.Contains(m.Message, c.words) {
				t.Errorf("%+v, want %q", m, c.words)
			}
			x.close()
		})
	}
	stays.close()
	r.end()
}

// idleConn returns a connection whose frames the test passes to it directly, and an inbox with so
// many received descriptors.
func idleConn(t *testing.T, files int) (*conn, *inbox) {
	t.Helper()
	near, far := pair(t)
	t.Cleanup(func() { near.Close(); far.Close() })
	d := New(Config{
		Version: "test",
		Node:    fakeNode(new(atomic.Int64), memory.New(memory.Options{})),
		Log:     slog.New(slog.DiscardHandler),
	})
	in := newInbox(near)
	for range files {
		in.files = append(in.files, memfd(t))
	}
	t.Cleanup(func() { in.close(); _ = d.cfg.Node.Close() })
	return newConn(d, near), in
}

// allClosed reports whether all files were closed already. It closes those that were not.
func allClosed(files []*os.File) bool {
	closed := true
	for _, f := range files {
		closed = errors.Is(f.Close(), os.ErrClosed) && closed
	}
	return closed
}

// TestDescriptorsOfAnUnexpectedViewAreClosed sends a VIEW that was not requested, as one that
// arrives too late.
func TestDescriptorsOfAnUnexpectedViewAreClosed(t *testing.T) {
	x, in := idleConn(t, viewFiles)
	files := in.files
	if err := x.viewed([]byte(`{"view": true, "error": ""}`), in); err != nil ||
		len(in.files) != 0 {
		t.Errorf("%v, and %d descriptors are left", err, len(in.files))
	}
	if !allClosed(files) {
		t.Error("its descriptors are still open")
	}
}

// TestDescriptorsOfAMalformedCallAreClosed checks that they are not taken for those of the next
// call.
func TestDescriptorsOfAMalformedCallAreClosed(t *testing.T) {
	x, in := idleConn(t, viewFiles)
	files := in.files
	with, err := x.broughtBy(protocol.CallMessage{
		Method: "dataset",
		Params: json.RawMessage(`{"view": 3}`),
	}, in)
	if with.view != nil || err != nil || len(in.files) != 0 || !allClosed(files) {
		t.Errorf("%v, %v, and %d descriptors are left", with, err, len(in.files))
	}
	for _, method := range []string{"dataset", "samples", "entries"} {
		if _, err := x.broughtBy(protocol.CallMessage{
			Method: method,
			Params: json.RawMessage(`{"view": true}`),
		}, in); !errors.Is(err, protocol.ErrProtocol) {
			t.Errorf("%s without its descriptors: %v", method, err)
		}
	}
}
