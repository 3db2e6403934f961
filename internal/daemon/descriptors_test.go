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

	"github.com/hdmlp/hdmlp/internal/protocol"
)

// sendFiles sends a call that takes no descriptors, with so many of them.
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

// TestDescriptorsThatNobodyAskedFor: a process cannot fill the daemon with open files: neither bit
// by bit, nor with more at once than the daemon takes.
func TestDescriptorsThatNobodyAskedFor(t *testing.T) {
	r := start(t)
	stays := r.hello()
	for name, c := range map[string]struct {
		counts []int
		words  string
	}{
		"bit by bit": {
			[]int{mostFiles / 2, mostFiles / 2, 1},
			"descriptors that belong to no frame",
		},
		"at once": {[]int{3 * mostFiles}, "descriptors were lost on the way"},
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

// idleConn is a connection whose frames the test hands over itself, with the descriptors that have
// come.
func idleConn(t *testing.T, files int) (*conn, *inbox) {
	t.Helper()
	near, far := pair(t)
	t.Cleanup(func() { near.Close(); far.Close() })
	d := New(Config{
		Version: "test",
		Node:    fakeNode(new(atomic.Int64)),
		Log:     slog.New(slog.DiscardHandler),
	})
	in := newInbox(near)
	for range files {
		in.files = append(in.files, memfd(t))
	}
	t.Cleanup(func() { in.close(); _ = d.cfg.Node.Close() })
	return newConn(d, near), in
}

// allClosed reports whether files were closed by what they were given to.
func allClosed(files []*os.File) bool {
	closed := true
	for _, f := range files {
		closed = errors.Is(f.Close(), os.ErrClosed) && closed
	}
	return closed
}

// TestViewThatNobodyWaitsFor: the descriptors of a VIEW that comes unasked, or too late, are
// closed.
func TestViewThatNobodyWaitsFor(t *testing.T) {
	x, in := idleConn(t, viewFiles)
	files := in.files
	if err := x.viewed([]byte(`{"view": true, "error": ""}`), in); err != nil ||
		len(in.files) != 0 {
		t.Errorf("%v, and %d descriptors are left", err, len(in.files))
	}
	if !allClosed(files) {
		t.Error("its descriptors stay open")
	}
}

// TestDescriptorsOfACallThatIsWrong: they are closed, and not taken for those of the next call.
func TestDescriptorsOfACallThatIsWrong(t *testing.T) {
	x, in := idleConn(t, viewFiles)
	files := in.files
	view, err := x.viewOf(protocol.CallMessage{
		Method: "dataset",
		Params: json.RawMessage(`{"view": 3}`),
	}, in)
	if view != nil || err != nil || len(in.files) != 0 || !allClosed(files) {
		t.Errorf("%v, %v, and %d descriptors are left", view, err, len(in.files))
	}
	for _, method := range []string{"dataset", "samples"} {
		if _, err := x.viewOf(protocol.CallMessage{
			Method: method,
			Params: json.RawMessage(`{"view": true}`),
		}, in); !errors.Is(err, protocol.ErrProtocol) {
			t.Errorf("%s without its descriptors: %v", method, err)
		}
	}
}
