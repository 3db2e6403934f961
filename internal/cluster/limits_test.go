package cluster

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	pb "github.com/hdmlp/hdmlp/internal/cluster/clusterpb"
)

// sealed is a message's only part, as one frame.
func sealed(t *testing.T, c *session, m *pb.Message) *pb.Frame {
	t.Helper()
	plain, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return &pb.Frame{Kind: &pb.Frame_Sealed{Sealed: c.out.close(append([]byte{0}, plain...))}}
}

// TestMessageHasALimit: who knows the secret cannot make the other side take memory without end by
// a message that does not end.
func TestMessageHasALimit(t *testing.T) {
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
	if _, err := z.receive(); !errors.As(err, new(*LimitError)) {
		t.Errorf("%v, not a limit", err)
	}
}

// TestOwnFramesDoNotOpen: what a side has sealed is of no use where it is given back to it.
func TestOwnFramesDoNotOpen(t *testing.T) {
	for _, isZero := range []bool{false, true} {
		p, _ := pipes()
		c := newSession(p, secret, 1, []byte("n"), []byte("z"), isZero)
		p.in <- sealed(t, c, readyMessage)
		if m, err := c.receive(); !errors.Is(err, errSeal) {
			t.Errorf("node 0's: %v: it took %v, %v", isZero, m, err)
		}
	}
}

// alone starts node 0, which waits for others until the test ends.
func (l *lab) alone() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = Form(ctx, l.options(0))
	}()
	l.t.Cleanup(func() {
		cancel()
		<-ended
	})
	<-l.at
}

// prove connects to node 0 and proves to know the secret, as a node; what is said then is the
// test's.
func (l *lab) prove(node int) *session {
	l.t.Helper()
	o := l.options(node)
	o.Join = l.join
	if err := o.complete(); err != nil {
		l.t.Fatal(err)
	}
	a := newAgent(o)
	l.t.Cleanup(a.close)
	dialer := &trackingDialer{network: o.Network}
	l.t.Cleanup(dialer.close)
	c, err := greet(a.call(l.t.Context(), dialer), o.Secret, node, dialer.bound)
	if err != nil {
		l.t.Fatal(err)
	}
	return c
}

// TestRegisterOfAProvedNode: who has proved to know the secret is taken in as the node that the
// proof was for, and in frames that are not larger than they may be.
func TestRegisterOfAProvedNode(t *testing.T) {
	l := newLab(t, 3)
	l.alone()
	for what, c := range map[string]struct {
		change func(r *pb.Register)
		taken  bool
	}{
		"as it should be": {func(*pb.Register) {}, true},
		"as another node": {func(r *pb.Register) {
			r.Node, r.Ranks = 2, []uint32{4, 5}
		}, false},
		"in a frame too large": {func(r *pb.Register) { r.Payload = make([]byte, 1<<20) }, false},
		"in a frame just right": {func(r *pb.Register) {
			r.Payload = make([]byte, maxPart/2)
		}, true},
	} {
		t.Run(what, func(t *testing.T) {
			c2 := l.prove(1)
			o := l.options(1)
			reg := o.register("instance of node 1")
			c.change(reg)
			_ = c2.stream.Send(sealed(t, c2,
				&pb.Message{Kind: &pb.Message_Register{Register: reg}}))
			m, err := c2.receive()
			if taken := err == nil && m.GetAccepted() != nil; taken != c.taken {
				t.Errorf("it was taken in: %v; %v, %v", taken, m, err)
			}
		})
	}
}

// loud is a node 0 that knows the secret, and then says more in one frame than may be.
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

// TestFrameOfNode0HasALimit: nor does a node take any frame from node 0.
func TestFrameOfNode0HasALimit(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	mux := http.NewServeMux()
	mux.Handle(pb.NewControlHandler(loud{t}))
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
	l := newLab(t, 2)
	l.join = listener.Addr().String()
	if m, err := l.prove(1).receive(); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("it took %d bytes, %v", proto.Size(m), err)
	}
}

// TestStrangerCanNotSayMuch: a connection that proves nothing is cut off after some kilobytes,
// whatever they are.
func TestStrangerCanNotSayMuch(t *testing.T) {
	l := newLab(t, 2)
	l.alone()
	c, err := net.Dial("tcp", l.join)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, c) }()
	// What begins HTTP/2, and then frames of a type that does not exist, which it leaves alone.
	const size = 16 << 10
	said := append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 0, 0, 0, 4, 0, 0, 0, 0, 0)
	frame := append([]byte{0, size >> 8, 0, 0xbb, 0, 0, 0, 0, 0}, bytes.Repeat([]byte{7}, size)...)
	for n := 0; n < 64<<20; n += len(said) {
		if _, err := c.Write(said); err != nil {
			return
		}
		said = frame
	}
	t.Error("it took 64 MiB")
}
