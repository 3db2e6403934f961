package session

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/hdmlp/hdmlp/internal/peers/cluster"
	pb "github.com/hdmlp/hdmlp/internal/peers/cluster/clusterpb"
)

// sealed returns a message as a single frame.
func sealed(t *testing.T, c *Session, m *pb.Message) *pb.Frame {
	t.Helper()
	plain, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return &pb.Frame{Kind: &pb.Frame_Sealed{Sealed: c.out.close(append([]byte{0}, plain...))}}
}

// TestMessageSizeIsLimited: an authenticated peer cannot exhaust the other side's memory with a
// message that does not end.
func TestMessageSizeIsLimited(t *testing.T) {
	up, down := pipes()
	n, z := newSession(up, secret, 1, []byte("n"), []byte("z"), false),
		newSession(down, secret, 1, []byte("n"), []byte("z"), true)
	part := make([]byte, 1+maxPart)
	part[0] = 1 // more follows
	for sent := 0; sent <= maxMessage; sent += maxPart {
		if err := up.Send(&pb.Frame{
			Kind: &pb.Frame_Sealed{Sealed: n.out.close(part)},
		}); err != nil {
			t.Fatal(err)
		}
	}
	close(up.out)
	if _, err := z.receive(); !errors.As(err, new(*cluster.LimitError)) {
		t.Errorf("%v, not a limit", err)
	}
}

// TestOwnFramesDoNotOpen: a side does not accept frames that it sealed itself.
func TestOwnFramesDoNotOpen(t *testing.T) {
	for _, isZero := range []bool{false, true} {
		p, _ := pipes()
		c := newSession(p, secret, 1, []byte("n"), []byte("z"), isZero)
		p.in <- sealed(t, c, readyMessage)
		if m, err := c.receive(); !errors.Is(err, errSeal) {
			t.Errorf("node 0: %v: it accepted %v, %v", isZero, m, err)
		}
	}
}

// accepting is a handler that accepts each node.
type accepting struct{ refused chan error }

func (h accepting) Attend(c *Accepted) {
	c.Send(&pb.Message{Kind: &pb.Message_Accepted{Accepted: &pb.Accepted{}}})
	c.Run(func(*pb.Message) error { return nil }, func() {})
}

func (h accepting) Refuse(_ string, err error) { h.refused <- err }

func (h accepting) Running() bool { return false }

// serveNode0 serves as node 0 until the test ends. It returns the address, and the refusals.
func serveNode0(t *testing.T) (address string, refused chan error) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := accepting{make(chan error, 10)}
	s := NewServer(ServerOptions{
		Nodes: 3, Instance: "zero's", Secret: secret, Log: slog.New(slog.DiscardHandler),
	}, h)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(listener) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String(), h.refused
}

// begin begins a node's stream to node 0; the test sends everything on it.
func begin(t *testing.T, address string) (stream, *trackingDialer) {
	t.Helper()
	dialer := &trackingDialer{network: cluster.OrSystem(nil)}
	t.Cleanup(dialer.close)
	o := ClientOptions{Join: address}
	return o.call(t.Context(), dialer), dialer
}

// prove connects to node 0 and performs a node's side of the handshake; the test sends the rest.
func prove(t *testing.T, address string, node int) *Session {
	t.Helper()
	st, dialer := begin(t, address)
	c, err := greet(st, secret, node, dialer.bound)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestRegisterIsCheckedAgainstTheProof: a node can register only as the node that its proof was
// for, and only in frames within the limit.
func TestRegisterIsCheckedAgainstTheProof(t *testing.T) {
	at, _ := serveNode0(t)
	for what, c := range map[string]struct {
		change func(r *pb.Register)
		taken  bool
	}{
		"as the proved node": {func(*pb.Register) {}, true},
		"as another node": {func(r *pb.Register) {
			r.Node, r.Ranks = 2, []uint32{4, 5}
		}, false},
		"in a frame too large": {func(r *pb.Register) { r.Payload = make([]byte, 1<<20) }, false},
		"in a frame within the limit": {func(r *pb.Register) {
			r.Payload = make([]byte, maxPart/2)
		}, true},
	} {
		t.Run(what, func(t *testing.T) {
			c2 := prove(t, at, 1)
			reg := &pb.Register{Node: 1, Instance: "one's", Ranks: []uint32{2, 3}}
			c.change(reg)
			_ = c2.stream.Send(sealed(t, c2,
				&pb.Message{Kind: &pb.Message_Register{Register: reg}}))
			m, err := c2.receive()
			if taken := err == nil && m.GetAccepted() != nil; taken != c.taken {
				t.Errorf("accepted: %v; %v, %v", taken, m, err)
			}
		})
	}
}

// loud is a node 0 that has the secret and sends a frame over the limit.
type loud struct{ t *testing.T }

func (z loud) Attend(_ context.Context, st *connect.BidiStream[pb.Frame, pb.Frame]) error {
	c, err := admit(st, secret, nil, func() error { return nil })
	if err != nil {
		return err
	}
	return st.Send(sealed(z.t, c,
		&pb.Message{
			Kind: &pb.Message_Welcome{Welcome: &pb.Welcome{Broadcast: make([]byte, 1<<20)}},
		}))
}

// serveControl serves the control port in place of node 0 until the test ends, and returns its
// address.
func serveControl(t *testing.T, handler pb.ControlHandler) (address string) {
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

// TestFrameSizeOfNode0IsLimited: a node accepts no frame over the limit, even from node 0.
func TestFrameSizeOfNode0IsLimited(t *testing.T) {
	at := serveControl(t, loud{t})
	if m, err := prove(t, at, 1).receive(); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("it accepted %d bytes, %v", proto.Size(m), err)
	}
}

// TestUnauthenticatedInputIsLimited: a connection without a proof is closed after some kilobytes of
// any input.
func TestUnauthenticatedInputIsLimited(t *testing.T) {
	at, _ := serveNode0(t)
	c, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, c) }()
	// The HTTP/2 preface, then frames of an unknown type, which HTTP/2 ignores.
	const size = 16 << 10
	said := append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 0, 0, 0, 4, 0, 0, 0, 0, 0)
	frame := append([]byte{0, size >> 8, 0, 0xbb, 0, 0, 0, 0, 0}, bytes.Repeat([]byte{7}, size)...)
	for n := 0; n < 64<<20; n += len(said) {
		if _, err := c.Write(said); err != nil {
			return
		}
		said = frame
	}
	t.Error("it accepted 64 MiB")
}
