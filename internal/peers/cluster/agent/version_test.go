package agent

import (
	"context"
	"net"
	"net/http"
	"testing"

	"connectrpc.com/connect"

	"github.com/hdmlp/hdmlp/internal/peers/auth"
	"github.com/hdmlp/hdmlp/internal/peers/cluster"
	pb "github.com/hdmlp/hdmlp/internal/peers/cluster/clusterpb"
	"github.com/hdmlp/hdmlp/internal/peers/cluster/session"
)

// other is a node 0 of another version of the protocol: all that it sends is its Hello.
type other uint32

func (v other) Attend(_ context.Context, st *connect.BidiStream[pb.Frame, pb.Frame]) error {
	if _, err := st.Receive(); err != nil {
		return err
	}
	return st.Send(&pb.Frame{Kind: &pb.Frame_Challenge{
		Challenge: &pb.Hello{Version: uint32(v), Nonce: auth.Nonce()},
	}})
}

// serveOther serves the control port in place of node 0 until the test ends, and returns its
// address.
func serveOther(t *testing.T, handler pb.ControlHandler) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	mux := http.NewServeMux()
	mux.Handle(pb.NewControlHandler(handler))
	web := &http.Server{Handler: mux, Protocols: protocols}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = web.Serve(listener)
	}()
	t.Cleanup(func() {
		_ = web.Close()
		<-ended
	})
	return listener.Addr().String()
}

// TestNode0OfAnotherVersionIsRefused: whichever is older, the node that joins names both versions,
// and ends at once.
func TestNode0OfAnotherVersionIsRefused(t *testing.T) {
	for what, theirs := range map[string]uint32{
		"older": session.Version - 1, "newer": session.Version + 1,
	} {
		t.Run(what+" node 0", func(t *testing.T) {
			l := newLab(t, 2)
			l.join = serveOther(t, other(theirs))
			o := l.options(1)
			o.Join = l.join
			_, err := Form(t.Context(), o)
			version, ok := err.(*cluster.VersionError)
			if !ok || *version != (cluster.VersionError{
				Node:    1,
				Address: "node 0 (" + l.join + ")",
				Mine:    session.Version,
				Theirs:  theirs,
			}) {
				t.Errorf("got %v", err)
			}
		})
	}
}
