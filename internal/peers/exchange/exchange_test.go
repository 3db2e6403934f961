package exchange

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/peers/exchange/wire"
)

func TestFetchReturnsTheSample(t *testing.T) {
	const directSize = 16 << 10 // from which package link reads directly into the destination
	sizes := []int{
		0, 1, 3072, 3073, directSize - 1, directSize, directSize + 1, 112640, 112641,
		1 << 20, 5<<20 + 7, 0,
	}
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
							t.Errorf("sample %d has other bytes", id)
						}
					})
				}
			}
			all.Wait()
			if got := c.Stats(); got.Samples != int64(4*len(sizes)) || got.InFlight != 0 ||
				got.Failed != 0 || got.Bytes == 0 {
				t.Errorf("client: %+v", got)
			}
			c.Close()
			s.Close()
			if n := h.holds.Load(); n != 0 {
				t.Errorf("%d samples are still held", n)
			}
			if got := s.Stats(); len(got.Peers) != 1 || got.Peers[0].Node != 1 ||
				got.Peers[0].InFlight != 0 || got.Reading != 0 {
				t.Errorf("server: %+v", got)
			}
		})
	}
}

// TestAnswersTellOfTheSource: an answer states how long the server waited for its sample to be read
// from the source; 0 if it lay in memory.
func TestAnswersTellOfTheSource(t *testing.T) { overAllTransports(t, testAnswersTellOfTheSource) }

func testAnswersTellOfTheSource(t *testing.T, ln net.Listener, dial dialer) {
	const takes = 4 * wire.WaitUnit
	h := newHolder(10, 10)
	h.read = func(ctx context.Context, id int32) error {
		<-time.After(takes)
		return nil
	}
	serve(t, ln, node(0), h, ServerOptions{})
	c := client(t, dial, ClientOptions{})
	for id, least := range []time.Duration{0, takes - wire.WaitUnit} {
		a, err := c.Fetch(t.Context(), int32(id), make([]byte, 10), Want{Size: 10})
		if err != nil || a.Waited < least || a.Waited > 0 && least == 0 {
			t.Errorf("sample %d: waited %v, want at least %v; error %v", id, a.Waited, least, err)
		}
	}
}

func TestErrorsHaveTheirKind(t *testing.T) { overAllTransports(t, testErrorsHaveTheirKind) }

func testErrorsHaveTheirKind(t *testing.T, ln net.Listener, dial dialer) {
	h := newHolder(10, 10, 10, 10)
	h.read = func(_ context.Context, id int32) error {
		if id == 3 {
			return errors.New("I/O error")
		}
		return nil
	}
	serve(t, ln, node(0), h, ServerOptions{})
	c := client(t, dial, ClientOptions{})
	for _, test := range []struct {
		id   int32
		size int
		kind error
	}{
		{0, 10, nil},
		{0, 11, ErrCorrupt},
		{1, 9, ErrCorrupt},
		{3, 10, ErrFailed},
		{4, 10, ErrNotHeld},
		{2_000_000_000, 10, ErrNotHeld},
		{-1, 10, ErrNotHeld},
		{1, 10, nil},
	} {
		err := fetched(c, context.Background(), test.id, make([]byte, test.size))
		var said *FetchError
		if !errors.Is(err, test.kind) ||
			(err != nil &&
				(!errors.As(err, &said) || said.ID != test.id || said.Kind != test.kind)) {
			t.Errorf("sample %d with %d bytes: %v, not %v", test.id, test.size, err, test.kind)
		}
	}
	if got := c.Stats().Connections; got != 1 {
		t.Errorf("%d connections were needed", got)
	}
}

// TestBufferBelongsToTheCallerAfterATimeout: a Fetch whose context ends returns at once, and its
// buffer is not written to afterwards, whether the sample was not sent or partly received.
func TestBufferBelongsToTheCallerAfterATimeout(t *testing.T) {
	for name, listen := range transports {
		t.Run(name, func(t *testing.T) {
			ln, dial := listen(t)
			const size = 1 << 20
			h := newHolder(size, size, size)
			const timeout = time.Minute // 240 MiB pass, and each fetch waits for those before it
			serve(t, ln, node(0), h, ServerOptions{Timeout: timeout})
			c := client(t, dial, ClientOptions{Timeout: timeout})
			var all sync.WaitGroup
			for worker := range 4 {
				all.Go(func() {
					r := rand.New(rand.NewPCG(uint64(worker), 1))
					dst, mark := make([]byte, size), bytes.Repeat([]byte{0xA5}, size)
					for range 30 {
						ctx, cancel := context.WithTimeout(context.Background(),
							time.Duration(r.IntN(1000))*time.Microsecond)
						id := int32(r.IntN(3))
						err := fetched(c, ctx, id, dst)
						cancel()
						if err == nil {
							if !bytes.Equal(dst, h.samples[id]) {
								t.Error("another sample")
							}
							continue
						}
						if !errors.Is(err, context.DeadlineExceeded) {
							t.Error(err)
						}
						copy(dst, mark)
						// The rest of the late answer arrives before this one.
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

// TestPeersTakeTurns: a peer with many requests delays another peer by one turn at most.
func TestPeersTakeTurns(t *testing.T) { overAllTransports(t, testPeersTakeTurns) }

func testPeersTakeTurns(t *testing.T, ln net.Listener, dial dialer) {
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
	waitFor(t, func() bool { return waiting(s, 1) == 99 })
	modest := NewClient(node(2), 0, dial, ClientOptions{})
	defer modest.Close()
	all.Go(func() { fetched(modest, context.Background(), 201, nil) })
	waitFor(t, func() bool { return waiting(s, 2) == 1 })
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

// TestCancelReachesHolder: the read of a cancelled request is cancelled.
func TestCancelReachesHolder(t *testing.T) { overAllTransports(t, testCancelReachesHolder) }

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

// TestLostConnectionIsReplaced: calls whose connection is lost are repeated on the new one.
func TestLostConnectionIsReplaced(t *testing.T) {
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

func TestCloseEndsCalls(t *testing.T) { overAllTransports(t, testCloseEndsCalls) }

func testCloseEndsCalls(t *testing.T, ln net.Listener, dial dialer) {
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
	err := fetched(other, context.Background(), 0, make([]byte, 1))
	if !errors.Is(err, ErrUnavailable) {
		t.Error(err)
	}
}

// TestFetchAllocations: in the long run a sample costs at most two allocations, on both sides
// together.
func TestFetchAllocations(t *testing.T) {
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
