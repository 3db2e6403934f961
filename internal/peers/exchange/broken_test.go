package exchange

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/peers/exchange/link"
	"github.com/hdmlp/hdmlp/internal/peers/exchange/wire"
)

// TestFetchDoesNotWaitForAPeerThatBreaksConnections: if a peer accepts connections but ends each
// before its first frame, a call in the pause between two attempts fails at once, as if attempts
// failed.
func TestFetchDoesNotWaitForAPeerThatBreaksConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		go rogueServer(t.Context(), p, func(net.Conn, func() wire.Request) {})
		c := NewClient(node(1), 0, p.dial, ClientOptions{})
		_ = c.Connect(t.Context())
		synctest.Wait() // the second connection was lost as well, and the client pauses
		began := time.Now()
		err := fetched(c, t.Context(), 0, make([]byte, 1))
		if !errors.Is(err, ErrUnavailable) || time.Since(began) != 0 {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		c.Close()
		p.Close()
	})
}

// TestFetchWaitsForOneConnection: a call without a connection waits for the one that is being made;
// if that is lost before the call could use it, the call fails with the reason and does not wait
// for another.
func TestFetchWaitsForOneConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewClient(node(1), 0, nil, ClientOptions{})
		// The test plays the part of the only lane.
		c.mu.started, c.mu.trying = true, []bool{true}
		connection := func() *link.Link {
			near, far := net.Pipe()
			t.Cleanup(func() { near.Close(); far.Close() })
			return link.New(near, 1,
				link.Options{Timeout: time.Minute, KeepAlive: time.Minute, Counts: &c.counts})
		}
		end := func(l *link.Link) {
			l.Fail(ErrUnavailable)
			c.note(0, t.Context(), l, errors.New("cut"), true)
		}
		before := connection()
		c.note(0, t.Context(), before, nil, true)
		before.Fail(ErrUnavailable) // its lane has not noted that yet
		waits := make(chan error, 1)
		go func() { waits <- c.Connect(t.Context()) }()
		synctest.Wait()
		end(before)
		synctest.Wait()
		if len(waits) > 0 {
			t.Fatalf("it did not wait: %v", <-waits)
		}
		next := connection()
		next.Fail(ErrUnavailable) // before a call can find it
		c.note(0, t.Context(), next, nil, true)
		synctest.Wait()
		if len(waits) > 0 {
			t.Fatalf("it did not wait for the reason: %v", <-waits)
		}
		end(next)
		if err := <-waits; err == nil || err.Error() != "cut" {
			t.Error(err)
		}
		c.Close()
	})
}

// TestPeerThatDoesNotAnswerACancelLosesItsConnection: a request that timed out is cancelled; a peer
// that does not answer that either counts as broken, even if it answers other requests: the tags
// would run out.
func TestPeerThatDoesNotAnswerACancelLosesItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		go rogueServer(t.Context(), p, func(conn net.Conn, next func() wire.Request) {
			for r := next(); r.Sample >= 0; r = next() {
				if r.Sample != 1 {
					conn.Write(good(r))
				}
			}
		})
		lost := make(chan error, 10)
		c := NewClient(node(1), 0, p.dial,
			ClientOptions{Timeout: 2 * time.Second, Changed: func(err error) {
				if err != nil {
					lost <- err
				}
			}})
		slow := make(chan error, 1)
		go func() { slow <- fetched(c, t.Context(), 1, nil) }()
		for range 60 {
			if err := fetched(c, t.Context(), 2, nil); err != nil {
				t.Error(err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if err := <-slow; !errors.Is(err, ErrUnavailable) {
			t.Error(err)
		}
		if got := c.Stats(); got.Connections != 2 || got.InFlight != 0 || len(lost) != 1 {
			t.Errorf("%+v, lost %d times", got, len(lost))
		}
		c.Close()
		p.Close()
	})
}

// TestBrokenHandshakeDoesNotCountAsAConnection: a connection that ends between its proof and the
// server's verdict does not count against its node's limit.
func TestBrokenHandshakeDoesNotCountAsAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		refused := make(chan error, 1)
		s := NewServer(node(0), newHolder(0),
			ServerOptions{ConnsPerNode: 1, Refused: func(_ net.Addr, err error) { refused <- err }})
		go s.Serve(t.Context(), p)
		conn, err := p.dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := node(1).greet(t.Context(), &closesAfter{Conn: conn, after: 2}, 0, 8,
			time.Minute); err == nil {
			t.Fatal("the handshake succeeded")
		}
		<-refused
		synctest.Wait() // the server has cleaned up
		c := NewClient(node(1), 0, p.dial, ClientOptions{})
		if err := c.Connect(t.Context()); err != nil {
			t.Error(err)
		}
		c.Close()
		s.Close()
	})
}

// closesAfter is a connection that closes after a number of writes.
type closesAfter struct {
	net.Conn
	after int
}

func (h *closesAfter) Write(b []byte) (int, error) {
	n, err := h.Conn.Write(b)
	if h.after--; h.after == 0 {
		h.Conn.Close()
	}
	return n, err
}

// TestStatsCountSamplesAndFailures: on both sides, and connections that have ended included.
func TestStatsCountSamplesAndFailures(t *testing.T) {
	ln, dial := overTCP(t)
	h := newHolder(10, 20, 30, 40)
	h.read = func(ctx context.Context, id int32) error {
		if id == 3 {
			<-ctx.Done()
		}
		return ctx.Err()
	}
	s := serve(t, ln, node(0), h, ServerOptions{})
	c := client(t, dial, ClientOptions{})
	for id, size := range map[int32]int{0: 10, 1: 20, 2: 31, 7: 1} {
		_, _ = c.Fetch(t.Context(), id, make([]byte, size), Want{Size: size})
	}
	given, cancel := context.WithCancel(t.Context())
	cancel()
	_, _ = c.Fetch(given, 3, make([]byte, 40), Want{Size: 40})
	_, _ = c.Fetch(t.Context(), -1, nil, Want{})
	if got := c.Stats(); got.Samples != 2 || got.Bytes != 30 || got.Failed != 4 {
		t.Errorf("the client counted %+v", got)
	}
	c.Close()
	waitFor(t, func() bool { p := s.Stats().Peers; return len(p) == 1 && p[0].Connections == 0 })
	if got := s.Stats().Peers[0]; got.Node != 1 || got.Samples != 2 || got.Bytes != 30 ||
		got.Failures < 2 {
		t.Errorf("the server counted %+v", got)
	}
}
