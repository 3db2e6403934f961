package exchange

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/peers/exchange/wire"
)

// fixture is a server over pipes in a synctest bubble. Reads by its holder, of samples with odd
// IDs, wait until gate is closed.
type fixture struct {
	t *testing.T
	p *pipes
	h *holder
	s *Server

	gate  chan struct{}
	lost  chan error
	ended chan error

	mu   sync.Mutex
	read []int32 // samples whose read has begun; guarded by mu
}

// withServer runs a test with a fixture in a bubble.
func withServer(t *testing.T, o ServerOptions, test func(t *testing.T, b *fixture)) {
	synctest.Test(t, func(t *testing.T) {
		b := &fixture{
			t:     t,
			p:     newPipes(),
			h:     newHolder(make([]int, 200)...),
			gate:  make(chan struct{}),
			lost:  make(chan error, 100),
			ended: make(chan error, 1),
		}
		b.h.read = func(_ context.Context, id int32) error {
			b.mu.Lock()
			b.read = append(b.read, id)
			b.mu.Unlock()
			<-b.gate // a read from a source that cannot be cancelled
			return nil
		}
		o.Lost = func(_ int, err error) { b.lost <- err }
		b.s = NewServer(node(0), b.h, o)
		go func() { b.ended <- b.s.Serve(t.Context(), b.p) }()
		test(t, b)
		b.s.Close()
		if err := <-b.ended; err != nil {
			t.Error(err)
		}
		if n := b.h.holds.Load(); n != 0 {
			t.Errorf("%d samples in memory are held after the server was closed", n)
		}
	})
}

// client returns a client, which the test has to close.
func (b *fixture) client(node int, o ClientOptions) *Client {
	id := Identity{Job: "job", Node: node, Nodes: 4, Secret: secret}
	return NewClient(id, 0, b.p.dial, o)
}

// raw returns a client's connection after the handshake; the test sends the rest.
func (b *fixture) raw(node, window int) net.Conn {
	b.t.Helper()
	conn, err := b.p.dial(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	id := Identity{Job: "job", Node: node, Nodes: 4, Secret: secret}
	if _, err := id.greet(b.t.Context(), conn, 0, window, time.Minute); err != nil {
		b.t.Fatal(err)
	}
	return conn
}

// ask sends a REQUEST for samples without bytes, with tags from 0 on.
func (b *fixture) ask(conn net.Conn, ids ...int32) {
	b.t.Helper()
	var requests []byte
	for tag, id := range ids {
		requests = wire.AppendRequest(requests,
			wire.Request{Tag: uint32(tag), Sample: id, Length: uint32(len(b.h.samples[id]))})
	}
	b.send(conn, wire.AppendFrame(nil, wire.Header{Kind: wire.KindRequest}, requests))
}

func (b *fixture) send(conn net.Conn, frame []byte) {
	b.t.Helper()
	if _, err := conn.Write(frame); err != nil {
		b.t.Fatal(err)
	}
}

// answer reads the next frame's header, but not its payload.
func (b *fixture) answer(conn net.Conn) wire.Header {
	b.t.Helper()
	var head [wire.HeaderSize]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		b.t.Fatal(err)
	}
	h, err := wire.Parse(head[:], true)
	if err != nil {
		b.t.Fatal(err)
	}
	return h
}

// begun returns the samples whose read has begun.
func (b *fixture) begun() []int32 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]int32(nil), b.read...)
}

// TestSmallerWindowApplies: a client whose window is larger than the server's keeps to the
// server's.
func TestSmallerWindowApplies(t *testing.T) {
	withServer(t, ServerOptions{Window: 4}, func(t *testing.T, b *fixture) {
		c := b.client(1, ClientOptions{Window: 64})
		var all sync.WaitGroup
		for id := int32(1); id < 40; id += 2 {
			all.Go(func() {
				if err := fetched(c, t.Context(), id, nil); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if n := inFlight(b.s, 1); n != 4 {
			t.Errorf("%d requests are in flight, not 4", n)
		}
		close(b.gate)
		all.Wait()
		if got := c.Stats(); got.Connections != 1 || got.Samples != 20 {
			t.Errorf("%+v", got)
		}
		c.Close()
	})
}

// TestCancelledRequestIsNotRead: a request that is cancelled before its turn is not read.
func TestCancelledRequestIsNotRead(t *testing.T) {
	withServer(t, ServerOptions{Reading: 1}, func(t *testing.T, b *fixture) {
		c := b.client(1, ClientOptions{})
		first := make(chan error, 1)
		go func() { first <- fetched(c, t.Context(), 1, nil) }()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		second := make(chan error, 1)
		go func() { second <- fetched(c, ctx, 3, nil) }()
		synctest.Wait()
		cancel()
		if err := <-second; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		synctest.Wait() // the server has received the cancellation
		close(b.gate)
		if err := <-first; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if got := b.begun(); len(got) != 1 || got[0] != 1 {
			t.Errorf("samples %v were read", got)
		}
		if n := inFlight(b.s, 1); n != 0 {
			t.Errorf("%d requests have no answer", n)
		}
		c.Close()
	})
}

// TestRequestsOfAClosedConnectionAreNotRead: requests that wait for their turn when the connection
// ends are not read.
func TestRequestsOfAClosedConnectionAreNotRead(t *testing.T) {
	withServer(t, ServerOptions{Reading: 1}, func(t *testing.T, b *fixture) {
		conn := b.raw(1, 8)
		b.ask(conn, 1, 3, 5)
		synctest.Wait()
		conn.Close()
		synctest.Wait()
		close(b.gate)
		<-b.lost
		if got := b.begun(); len(got) != 1 {
			t.Errorf("samples %v were read", got)
		}
	})
}

// TestReadsOverTheConnectionsLimitWait: requests over the limit of concurrent reads of one
// connection are read later.
func TestReadsOverTheConnectionsLimitWait(t *testing.T) {
	withServer(t, ServerOptions{Reading: 8, ReadingPerConn: 2}, func(t *testing.T, b *fixture) {
		c := b.client(1, ClientOptions{})
		var all sync.WaitGroup
		for id := int32(1); id < 20; id += 2 {
			all.Go(func() {
				if err := fetched(c, t.Context(), id, nil); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if got := b.begun(); len(got) != 2 {
			t.Errorf("%d samples of one connection are being read, not 2", len(got))
		}
		close(b.gate)
		all.Wait()
		c.Close()
	})
}

// TestCancelledAnswerReleasesItsSample: an answer that was ready when its request was cancelled is
// not sent, and its sample is released while the connection stays open.
func TestCancelledAnswerReleasesItsSample(t *testing.T) {
	withServer(t, ServerOptions{}, func(t *testing.T, b *fixture) {
		close(b.gate)
		for id := range b.h.samples {
			b.h.samples[id] = bytesOf(int32(id), 10)
		}
		lenders := &lenders{holder: b.h}
		b.s.h = lenders
		conn := b.raw(1, 8)
		b.ask(conn, 1)
		synctest.Wait() // the writer waits for us to read
		b.send(conn, wire.AppendFrame(nil, wire.Header{Kind: wire.KindRequest},
			wire.AppendRequest(nil, wire.Request{Tag: 1, Sample: 3, Length: 10})))
		synctest.Wait() // that one is ready
		b.send(conn, wire.AppendFrame(nil, wire.Header{Kind: wire.KindCancel}, []byte{1, 0, 0, 0}))
		synctest.Wait()
		if h := b.answer(conn); h.Kind != wire.KindSample || h.Sample != 1 {
			t.Errorf("the first answer: %+v", h)
		}
		_, _ = io.CopyN(io.Discard, conn, 10)
		if h := b.answer(conn); h.Kind != wire.KindFailure || h.Code != wire.CodeCancelled ||
			h.Sample != 3 {
			t.Errorf("the second answer: %+v", h)
		}
		_, _ = io.CopyN(io.Discard, conn, int64(len("cancelled"))) // its text
		synctest.Wait()
		if n := lenders.lending(); n != 0 {
			t.Errorf("%d samples are still lent", n)
		}
		conn.Close()
	})
}

// TestSamplesInMemoryAreReleased checks that a sample in memory is held while its answer is being
// sent, and no longer: once it was sent, was cancelled, could not be sent, or was never asked for
// properly.
func TestSamplesInMemoryAreReleased(t *testing.T) {
	withServer(t, ServerOptions{Timeout: time.Second}, func(t *testing.T, b *fixture) {
		close(b.gate)
		for id := range b.h.samples {
			b.h.samples[id] = bytesOf(int32(id), 10)
		}
		held := func(when string, want int64) {
			t.Helper()
			synctest.Wait()
			if n := b.h.holds.Load(); n != want {
				t.Errorf("%s, %d samples are held, want %d", when, n, want)
			}
		}
		c := b.client(2, ClientOptions{})
		if err := fetched(c, t.Context(), 4, make([]byte, 10)); err != nil {
			t.Error(err)
		}
		held("after it was sent", 0)
		c.Close()
		conn := b.raw(1, 8)
		b.ask(conn, 2)
		held("while the client does not read", 1)
		b.send(conn, wire.AppendFrame(nil, wire.Header{Kind: wire.KindRequest},
			wire.AppendRequest(nil, wire.Request{Tag: 1, Sample: 6, Length: 10})))
		held("while another answer is ready", 2)
		b.send(conn, wire.AppendFrame(nil, wire.Header{Kind: wire.KindRequest},
			wire.AppendRequest(nil, wire.Request{Tag: 1, Sample: 8, Length: 10})))
		held("after a request with a tag that is taken", 0)
		conn.Close()
		conn = b.raw(1, 8)
		b.ask(conn, 2, 6, 10)
		held("while the client does not read", 3)
		time.Sleep(time.Minute)
		held("after the client was given up", 0)
		conn.Close()
	})
}

// lenders counts the samples of a holder that are lent.
type lenders struct {
	*holder
	mu sync.Mutex
	n  int
}

func (l *lenders) lending() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n
}

func (l *lenders) Sample(ctx context.Context, id int32, w Want,
	send func(Copy, bool) error,
) error {
	return l.holder.Sample(ctx, id, w, func(c Copy, read bool) error {
		l.count(1)
		defer l.count(-1)
		return send(c, read)
	})
}

func (l *lenders) count(by int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n += by
}

// TestSilentClientIsDisconnected: a connection that is silent for the idle time is closed, so that
// a client that has vanished does not count against its node's limit.
func TestSilentClientIsDisconnected(t *testing.T) {
	withServer(t, ServerOptions{Idle: time.Minute}, func(t *testing.T, b *fixture) {
		conn := b.raw(1, 8)
		began := time.Now()
		if err := <-b.lost; err == nil || errors.Is(err, io.EOF) ||
			time.Since(began) != time.Minute {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		conn.Close()
	})
}

// TestSlowReaderGetsALargeSample: the time to send an answer grows with its size.
func TestSlowReaderGetsALargeSample(t *testing.T) {
	const size = 8 << 20
	withServer(t, ServerOptions{Timeout: 2 * time.Second}, func(t *testing.T, b *fixture) {
		b.h.samples[0] = bytesOf(0, size)
		conn := b.raw(1, 8)
		b.ask(conn, 0)
		if h := b.answer(conn); h.Length != size {
			t.Errorf("%+v", h)
		}
		for range 16 { // one megabyte per second
			time.Sleep(500 * time.Millisecond)
			if _, err := io.CopyN(io.Discard, conn, size/16); err != nil {
				t.Fatal(err)
			}
		}
		conn.Close()
		if err := <-b.lost; !errors.Is(err, io.EOF) {
			t.Error(err)
		}
	})
}
