package daemon

import (
	"errors"
	"io"
	"syscall"
	"testing"

	"github.com/hdmlp/hdmlp/internal/daemon/protocol"
)

// TestStoppedDaemonAnswersNothingMore checks that a process finds its connection ended when the
// daemon is stopped, whatever it waited for. Sometimes the process first received an error that
// its request was cancelled, as if something of its own had failed.
func TestStoppedDaemonAnswersNothingMore(t *testing.T) {
	for name, ask := range map[string]func(*client){
		"OPEN": func(x *client) {
			x.json(protocol.Open,
				openMessage(func(m *protocol.OpenMessage) { m.Dataset.Path = "/slow" }))
		},
		"audit": func(x *client) {
			x.open()
			x.json(protocol.Call,
				protocol.CallMessage{ID: 1, Method: "audit", Params: []byte(`{"epoch": 0}`)})
		},
	} {
		t.Run(name, func(t *testing.T) {
			for range 40 { // it was a race
				r := start(t)
				x := r.hello()
				ask(x)
				_, failure := r.hello().call("stats", "{}") // so that it waits already, mostly
				r.stop()
				if f, err := x.receive(); !errors.Is(err, io.EOF) &&
					!errors.Is(err, syscall.ECONNRESET) || failure != nil {
					t.Fatalf("frame %d: %s; error %v, %v", f.kind, f.payload, err, failure)
				}
				x.close()
				r.end()
			}
		})
	}
}
