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
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/digest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var secret = []byte("sixteen bytes or more")

func node(n int) Identity { return Identity{Job: "job", Node: n, Nodes: 4, Secret: secret} }

// bytesOf is what sample id of a size holds.
func bytesOf(id int32, size int) []byte {
	b := make([]byte, size)
	r := rand.New(rand.NewPCG(uint64(id), uint64(size)))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// holder holds samples: of even ID in memory, of odd ID behind Sample.
type holder struct {
	samples [][]byte
	read    func(ctx context.Context, id int32) error // before Sample sends; may be nil
}

func newHolder(sizes ...int) *holder {
	h := &holder{}
	for id, size := range sizes {
		h.samples = append(h.samples, bytesOf(int32(id), size))
	}
	return h
}

func (h *holder) Held(id int32) ([]byte, uint32, bool) {
	if int(id) >= len(h.samples) || id%2 == 1 {
		return nil, 0, false
	}
	return h.samples[id], digest.Of(h.samples[id]), true
}

// fetched fetches a sample, whose digest must be that of its bytes.
func fetched(c *Client, ctx context.Context, id int32, dst []byte) error {
	sum, err := c.Fetch(ctx, id, dst)
	if err == nil && sum != digest.Of(dst) {
		err = fmt.Errorf("sample %d: another digest, %x", id, sum)
	}
	return err
}

func (h *holder) Sample(ctx context.Context, id int32, send func([]byte, uint32) error) error {
	if int(id) >= len(h.samples) {
		return fmt.Errorf("it is not mine: %w", ErrNotHeld)
	}
	if h.read != nil {
		if err := h.read(ctx, id); err != nil {
			return err
		}
	}
	lent := bytes.Clone(h.samples[id])
	err := send(lent, digest.Of(lent))
	clear(lent) // whoever still sends it sends zeros
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
func (p *pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (p *pipes) dial(ctx context.Context) (net.Conn, error) {
	mine, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return mine, nil
	case <-p.done:
		return nil, errors.New("nobody listens")
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

// overTLS is overTCP, and TLS over it.
func overTLS(t testing.TB) (net.Listener, dialer) {
	pair, pool := certificate(t)
	ln, dial := overTCP(t)
	return tls.NewListener(ln, &tls.Config{Certificates: []tls.Certificate{pair}}), func(ctx context.Context) (net.Conn, error) {
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

var transports = map[string]func(testing.TB) (net.Listener, dialer){"tcp": overTCP, "tls": overTLS, "pipe": overPipes}

// everywhere runs a test over every transport.
func everywhere(t *testing.T, test func(t *testing.T, ln net.Listener, dial dialer)) {
	for name, listen := range transports {
		t.Run(name, func(t *testing.T) {
			ln, dial := listen(t)
			test(t, ln, dial)
		})
	}
}

func TestFetch(t *testing.T) {
	sizes := []int{0, 1, 3072, 3073, directSize - 1, directSize, directSize + 1, 112640, 112641, 1 << 20, 5<<20 + 7, 0}
	for name, listen := range transports {
		t.Run(name, func(t *testing.T) {
			ln, dial := listen(t)
			h := newHolder(sizes...)
			s := serve(t, ln, node(0), h, ServerOptions{})
			c := client(t, dial, ClientOptions{Conns: 2})
			var all sync.WaitGroup
			for range 4 {
				for id, size := range sizes {
					all.Go(func() {
						dst := make([]byte, size)
						if err := fetched(c, context.Background(), int32(id), dst); err != nil {
							t.Error(err)
						} else if !bytes.Equal(dst, h.samples[id]) {
							t.Errorf("sample %d is not what it was", id)
						}
					})
				}
			}
			all.Wait()
			if got := c.Stats(); got.Samples != int64(4*len(sizes)) || got.InFlight != 0 || got.Failed != 0 || got.Bytes == 0 {
				t.Errorf("client: %+v", got)
			}
			c.Close()
			s.Close()
			if got := s.Stats(); len(got.Peers) != 1 || got.Peers[0].Node != 1 || got.Peers[0].InFlight != 0 || got.Reading != 0 {
				t.Errorf("server: %+v", got)
			}
		})
	}
}

func TestAnswersOtherThanTheSample(t *testing.T) { everywhere(t, testAnswersOtherThanTheSample) }

func testAnswersOtherThanTheSample(t *testing.T, ln net.Listener, dial dialer) {
	h := newHolder(10, 10, 10, 10)
	h.read = func(_ context.Context, id int32) error {
		if id == 3 {
			return errors.New("the disk is on fire")
		}
		return nil
	}
	serve(t, ln, node(0), h, ServerOptions{})
	c := client(t, dial, ClientOptions{})
	for _, test := range []struct {
		id   int32
		size int
		kind error
	}{{0, 10, nil}, {0, 11, ErrCorrupt}, {1, 9, ErrCorrupt}, {3, 10, ErrFailed}, {4, 10, ErrNotHeld}, {2_000_000_000, 10, ErrNotHeld}, {-1, 10, ErrNotHeld}, {1, 10, nil}} {
		err := fetched(c, context.Background(), test.id, make([]byte, test.size))
		var said *FetchError
		if !errors.Is(err, test.kind) || (err != nil && (!errors.As(err, &said) || said.ID != test.id || said.Kind != test.kind)) {
			t.Errorf("sample %d with %d bytes: %v, not %v", test.id, test.size, err, test.kind)
		}
	}
	if got := c.Stats().Connections; got != 1 {
		t.Errorf("%d connections were needed", got)
	}
}

// TestLeaving: a caller whose time is up leaves at once, and nobody writes to
// its buffer from then on, wherever its sample is: not sent, or half here.
func TestLeaving(t *testing.T) {
	for name, listen := range transports {
		t.Run(name, func(t *testing.T) {
			ln, dial := listen(t)
			const size = 3 << 20
			h := newHolder(size, size, size)
			serve(t, ln, node(0), h, ServerOptions{})
			c := client(t, dial, ClientOptions{})
			var all sync.WaitGroup
			for worker := range 4 {
				all.Go(func() {
					r := rand.New(rand.NewPCG(uint64(worker), 1))
					dst, mark := make([]byte, size), bytes.Repeat([]byte{0xA5}, size)
					for range 30 {
						ctx, cancel := context.WithTimeout(context.Background(), time.Duration(r.IntN(3000))*time.Microsecond)
						id := int32(r.IntN(3))
						err := fetched(c, ctx, id, dst)
						cancel()
						if err == nil {
							if !bytes.Equal(dst, h.samples[id]) {
								t.Error("not the sample")
							}
							continue
						}
						if !errors.Is(err, context.DeadlineExceeded) {
							t.Error(err)
						}
						copy(dst, mark)
						// Whatever is still to come comes before this does.
						other := make([]byte, size)
						if err := fetched(c, context.Background(), 0, other); err != nil {
							t.Error(err)
						}
						if !bytes.Equal(dst, mark) {
							t.Error("the buffer was written to after Fetch had returned")
						}
					}
				})
			}
			all.Wait()
			waitFor(t, func() bool { return c.Stats().InFlight == 0 })
			if got := c.Stats(); got.Connections != 1 {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestTurns: a peer that asks for all there is does not keep another waiting for more than a turn.
func TestTurns(t *testing.T) { everywhere(t, testTurns) }

func testTurns(t *testing.T, ln net.Listener, dial dialer) {
	sizes := make([]int, 400)
	h := newHolder(sizes...)
	var mu sync.Mutex
	var order []int32
	gate := make(chan struct{})
	h.read = func(ctx context.Context, id int32) error {
		<-gate
		mu.Lock()
		defer mu.Unlock()
		order = append(order, id)
		return nil
	}
	s := serve(t, ln, node(0), h, ServerOptions{Reading: 1})
	greedy := client(t, dial, ClientOptions{})
	var all sync.WaitGroup
	for id := int32(1); id < 200; id += 2 {
		all.Go(func() { fetched(greedy, context.Background(), id, nil) })
	}
	waitFor(t, func() bool { return inFlight(s, 1) == 100 })
	modest := NewClient(node(2), 0, dial, ClientOptions{})
	defer modest.Close()
	all.Go(func() { fetched(modest, context.Background(), 201, nil) })
	waitFor(t, func() bool { return inFlight(s, 2) == 1 })
	close(gate)
	all.Wait()
	mu.Lock()
	defer mu.Unlock()
	for at, id := range order {
		if id == 201 && at > 2 {
			t.Errorf("the modest peer was served after %d samples of the greedy one", at)
		}
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

// soon is what comes next, where something has to come.
func soon[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(time.Minute):
		t.Fatal("it did not come to that")
	}
	return v
}

// waitFor yields until what it waits for is so.
func waitFor(t *testing.T, so func() bool) {
	t.Helper()
	for since := time.Now(); !so(); {
		if time.Since(since) > 10*time.Second {
			t.Fatal("it did not come to that")
		}
		select {
		case <-time.After(time.Millisecond):
		case <-t.Context().Done():
		}
	}
}

// TestCancelReachesHolder: what nobody waits for is not read on.
func TestCancelReachesHolder(t *testing.T) { everywhere(t, testCancelReachesHolder) }

func testCancelReachesHolder(t *testing.T, ln net.Listener, dial dialer) {
	h := newHolder(1, 1)
	began, ended := make(chan struct{}), make(chan struct{})
	h.read = func(ctx context.Context, _ int32) error {
		close(began)
		<-ctx.Done()
		close(ended)
		return ctx.Err()
	}
	serve(t, ln, node(0), h, ServerOptions{})
	c := client(t, dial, ClientOptions{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-began; cancel() }()
	if err := fetched(c, ctx, 1, make([]byte, 1)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-ended
	waitFor(t, func() bool { return c.Stats().InFlight == 0 })
}

// TestReconnect: a connection that is lost is replaced, and its calls are made again.
func TestReconnect(t *testing.T) {
	ln, dial := overTCP(t)
	h := newHolder(112640)
	serve(t, ln, node(0), h, ServerOptions{})
	var mu sync.Mutex
	var conns []net.Conn
	c := client(t, func(ctx context.Context) (net.Conn, error) {
		conn, err := dial(ctx)
		mu.Lock()
		defer mu.Unlock()
		conns = append(conns, conn)
		return conn, err
	}, ClientOptions{})
	dst := make([]byte, 112640)
	for range 5 {
		if err := fetched(c, context.Background(), 0, dst); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		conns[len(conns)-1].(*net.TCPConn).CloseWrite()
		mu.Unlock()
	}
}

func TestClose(t *testing.T) { everywhere(t, testClose) }

func testClose(t *testing.T, ln net.Listener, dial dialer) {
	h := newHolder(1, 1)
	h.read = func(ctx context.Context, _ int32) error { <-ctx.Done(); return ctx.Err() }
	s := serve(t, ln, node(0), h, ServerOptions{})
	c := client(t, dial, ClientOptions{})
	failed := make(chan error, 1)
	go func() { failed <- fetched(c, context.Background(), 1, make([]byte, 1)) }()
	waitFor(t, func() bool { return inFlight(s, 1) == 1 })
	c.Close()
	if err := <-failed; !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if err := fetched(c, context.Background(), 0, make([]byte, 1)); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	s.Close()
	other := client(t, dial, ClientOptions{Timeout: time.Second})
	if err := fetched(other, context.Background(), 0, make([]byte, 1)); !errors.Is(err, ErrUnavailable) {
		t.Error(err)
	}
}

// TestAllocations: in the long run a sample costs no memory.
func TestAllocations(t *testing.T) {
	ln, dial := overTCP(t)
	serve(t, ln, node(0), newHolder(112640, 0, 3072), ServerOptions{})
	c := client(t, dial, ClientOptions{})
	for _, id := range []int32{0, 2} {
		dst := make([]byte, []int{112640, 0, 3072}[id])
		fetch := func() {
			if err := fetched(c, context.Background(), id, dst); err != nil {
				t.Fatal(err)
			}
		}
		fetch()
		if got := testing.AllocsPerRun(500, fetch); got > 2 && !raceEnabled {
			t.Errorf("%d bytes: %v allocations per sample, both sides together", len(dst), got)
		}
	}
}
