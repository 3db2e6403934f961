package exchange

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hdmlp/hdmlp/internal/lib/digest"
	"github.com/hdmlp/hdmlp/internal/peers/auth/authtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var secret = []byte("sixteen bytes or more")

func node(n int) Identity { return Identity{Job: "job", Node: n, Nodes: 4, Secret: secret} }

// bytesOf returns the bytes of sample id with a size.
func bytesOf(id int32, size int) []byte {
	b := make([]byte, size)
	r := rand.New(rand.NewPCG(uint64(id), uint64(size)))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// holder holds samples: those with even IDs in memory, those with odd IDs are read by Sample.
type holder struct {
	samples [][]byte
	forms   map[int32][]byte                          // of some samples
	read    func(ctx context.Context, id int32) error // before Sample sends; may be nil
	holds   atomic.Int64                              // samples in use
}

func newHolder(sizes ...int) *holder {
	h := &holder{}
	for id, size := range sizes {
		h.samples = append(h.samples, bytesOf(int32(id), size))
	}
	return h
}

func (h *holder) Held(id int32, w Want) (c Copy, held bool) {
	if int(id) >= len(h.samples) || id%2 == 1 {
		return c, false
	}
	h.holds.Add(1)
	c = h.copy(id, w)
	c.Hold = hold{h}
	return c, true
}

// copy returns a sample, or its form, if it has one that w takes; each gives the sample.
func (h *holder) copy(id int32, w Want) Copy {
	if form := h.forms[id]; form != nil && len(form) <= w.Most && !w.Unpack {
		return Copy{Data: form, Kind: formKind, Digest: digest.Of(form)}
	}
	return Copy{Data: h.samples[id], Digest: digest.Of(h.samples[id])}
}

// formKind is that of the forms of tests.
const formKind = 7

// hold counts the samples of a holder that are in use.
type hold struct{ h *holder }

func (x hold) Release() { x.h.holds.Add(-1) }

// fetched fetches a sample, whose digest must be that of its bytes.
func fetched(c *Client, ctx context.Context, id int32, dst []byte) error {
	a, err := c.Fetch(ctx, id, dst, Want{Size: len(dst)})
	if err == nil && a.Digest != digest.Of(dst) {
		err = fmt.Errorf("sample %d: another digest, %x", id, a.Digest)
	}
	return err
}

func (h *holder) Sample(ctx context.Context, id int32, w Want,
	send func(Copy, bool) error,
) error {
	if int(id) >= len(h.samples) {
		return fmt.Errorf("not in this holder: %w", ErrNotHeld)
	}
	if h.read != nil {
		if err := h.read(ctx, id); err != nil {
			return err
		}
	}
	lent := h.copy(id, w)
	lent.Data = bytes.Clone(lent.Data)
	err := send(lent, h.read != nil)
	clear(lent.Data) // a send that still goes on would send zeros
	return err
}

// pipes is a listener of net.Pipe connections.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error { p.once.Do(func() { close(p.done) }); return nil }

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (p *pipes) dial(ctx context.Context) (net.Conn, error) {
	mine, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return mine, nil
	case <-p.done:
		return nil, errors.New("the listener is closed")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type dialer = func(ctx context.Context) (net.Conn, error)

// overTCP listens on a port of loopback.
func overTCP(t testing.TB) (net.Listener, dialer) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln, func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", ln.Addr().String())
	}
}

// overTLS is overTCP with TLS on top.
func overTLS(t testing.TB) (net.Listener, dialer) {
	pair, pool := authtest.Certificate(t)
	ln, dial := overTCP(t)
	return tls.NewListener(ln, &tls.Config{Certificates: []tls.Certificate{pair}}),
		func(ctx context.Context) (net.Conn, error) {
			conn, err := dial(ctx)
			if err != nil {
				return nil, err
			}
			return tls.Client(conn, &tls.Config{RootCAs: pool, ServerName: "hdmlp"}), nil
		}
}

func overPipes(testing.TB) (net.Listener, dialer) {
	p := newPipes()
	return p, p.dial
}

// serve runs a server until the test ends.
func serve(t testing.TB, ln net.Listener, id Identity, h Holder, o ServerOptions) *Server {
	s := NewServer(id, h, o)
	done := make(chan error, 1)
	go func() { done <- s.Serve(context.Background(), ln) }()
	t.Cleanup(func() {
		s.Close()
		ln.Close()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return s
}

func client(t testing.TB, dial dialer, o ClientOptions) *Client {
	c := NewClient(node(1), 0, dial, o)
	t.Cleanup(func() { c.Close() })
	return c
}

var transports = map[string]func(testing.TB) (net.Listener, dialer){
	"tcp":  overTCP,
	"tls":  overTLS,
	"pipe": overPipes,
}

// overAllTransports runs a test over every transport.
func overAllTransports(t *testing.T, test func(t *testing.T, ln net.Listener, dial dialer)) {
	for name, listen := range transports {
		t.Run(name, func(t *testing.T) {
			ln, dial := listen(t)
			test(t, ln, dial)
		})
	}
}

func inFlight(s *Server, node int) int {
	for _, p := range s.Stats().Peers {
		if p.Node == node {
			return p.InFlight
		}
	}
	return 0
}

// waiting returns how many requests of a node wait for their turn to be read.
func waiting(s *Server, node int) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.mu.serving {
		if c.node == node {
			n += len(c.waiting)
		}
	}
	return n
}

// receive returns the next value, which has to arrive.
func receive[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(time.Minute):
		t.Fatal("timed out")
	}
	return v
}

// waitFor waits until a condition holds.
func waitFor(t *testing.T, holds func() bool) {
	t.Helper()
	for since := time.Now(); !holds(); {
		if time.Since(since) > 10*time.Second {
			t.Fatal("timed out")
		}
		select {
		case <-time.After(time.Millisecond):
		case <-t.Context().Done():
		}
	}
}
