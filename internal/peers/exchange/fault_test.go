package exchange

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/peers/exchange/wire"
)

// TestSlowSampleKeepsTheConnection: a peer that is slow for one sample only keeps its connection.
func TestSlowSampleKeepsTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		h := newHolder(10, 10, 10)
		h.read = func(ctx context.Context, _ int32) error { <-ctx.Done(); return ctx.Err() }
		s := NewServer(node(0), h, ServerOptions{})
		go s.Serve(t.Context(), p)
		c := NewClient(node(1), 0, p.dial, ClientOptions{Timeout: 2 * time.Second})
		slow := make(chan error, 1)
		go func() { slow <- fetched(c, t.Context(), 1, make([]byte, 10)) }()
		for range 40 {
			if err := fetched(c, t.Context(), 2, make([]byte, 10)); err != nil {
				t.Error(err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		select {
		case err := <-slow:
			if !errors.Is(err, ErrUnavailable) {
				t.Error(err)
			}
		default:
			t.Error("the fetch of the slow sample has not ended")
		}
		synctest.Wait()
		if got := c.Stats(); got.Connections != 1 || got.InFlight != 0 {
			t.Errorf("%+v", got)
		}
		c.Close()
		s.Close()
	})
}

// TestIdleConnectionIsKept: an idle connection stays open, and one whose peer has become silent is
// replaced.
func TestIdleConnectionIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		s := NewServer(node(0), newHolder(10), ServerOptions{})
		go s.Serve(t.Context(), p)
		var line *faulty
		c := NewClient(node(1), 0, func(ctx context.Context) (net.Conn, error) {
			conn, err := p.dial(ctx)
			line = &faulty{Conn: conn}
			return line, err
		}, ClientOptions{})
		for range 10 {
			if err := fetched(c, t.Context(), 0, make([]byte, 10)); err != nil {
				t.Error(err)
			}
			time.Sleep(10 * time.Minute)
		}
		if got := c.Stats().Connections; got != 1 {
			t.Errorf("%d connections were made", got)
		}
		line.mu.Lock()
		line.silent = true
		line.mu.Unlock()
		time.Sleep(time.Minute)
		if got := c.Stats(); got.Connections != 2 || got.Err == nil {
			t.Errorf("the peer's silence was not noticed: %+v", got)
		}
		c.Close()
		s.Close()
	})
}

// faulty is a connection that injects faults.
type faulty struct {
	net.Conn
	mu     sync.Mutex
	r      *rand.Rand
	silent bool    // discard writes
	delay  float64 // probability that a call is delayed,
	cut    float64 // that it ends the connection,
	flip   float64 // that it flips a bit
	proved int     // bytes that pass without faults, in both directions together: the handshake
}

func (f *faulty) fate(b []byte) (n int, delay time.Duration, cut bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.r == nil {
		return len(b), 0, false
	}
	if len(b) > 0 {
		n = 1 + f.r.IntN(len(b))
	}
	if f.proved > 0 {
		f.proved -= n
		return n, 0, false
	}
	if f.r.Float64() < f.delay {
		delay = time.Duration(f.r.IntN(int(50 * time.Millisecond)))
	}
	return n, delay, f.r.Float64() < f.cut
}

func (f *faulty) Read(b []byte) (int, error) {
	n, delay, cut := f.fate(b)
	time.Sleep(delay)
	if cut {
		f.Conn.Close()
	}
	n, err := f.Conn.Read(b[:n])
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.r != nil && f.proved <= 0 && n > 0 && f.r.Float64() < f.flip {
		b[f.r.IntN(n)] ^= 1 << f.r.IntN(8)
	}
	return n, err
}

func (f *faulty) Write(b []byte) (int, error) {
	f.mu.Lock()
	silent := f.silent
	f.mu.Unlock()
	if silent {
		return len(b), nil
	}
	_, delay, cut := f.fate(b)
	time.Sleep(delay)
	if cut {
		f.Conn.Close()
	}
	return f.Conn.Write(b)
}

// TestFetchEndsOnAFaultyNetwork: with any faults of the network every Fetch returns in time, with
// the sample or an error; when the faults end, fetches succeed again.
func TestFetchEndsOnAFaultyNetwork(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 5))
			sizes := make([]int, 40)
			for i := range sizes {
				sizes[i] = []int{r.IntN(100), r.IntN(5000), r.IntN(200_000)}[r.IntN(3)]
			}
			h := newHolder(sizes...)
			h.read = func(ctx context.Context, id int32) error {
				switch id % 8 {
				case 1:
					time.Sleep(time.Duration(id) * 10 * time.Millisecond)
				case 3:
					return io.ErrUnexpectedEOF
				}
				return ctx.Err()
			}
			p := newPipes()
			s := NewServer(node(0), h,
				ServerOptions{Reading: 4, ReadingPerConn: 3, Timeout: 2 * time.Second})
			go s.Serve(t.Context(), p)
			var mu sync.Mutex
			healthy := false
			cutRate, flipRate := r.Float64()*0.01, r.Float64()*0.01
			c := NewClient(node(1), 0, func(ctx context.Context) (net.Conn, error) {
				conn, err := p.dial(ctx)
				mu.Lock()
				defer mu.Unlock()
				if healthy || err != nil {
					return conn, err
				}
				return &faulty{
					Conn:   conn,
					r:      rand.New(rand.NewPCG(r.Uint64(), 1)),
					delay:  0.1,
					cut:    cutRate,
					flip:   flipRate,
					proved: 200,
				}, nil
			}, ClientOptions{
				Conns:     1 + r.IntN(3),
				Window:    1 + r.IntN(40),
				Timeout:   2 * time.Second,
				KeepAlive: time.Second,
			})
			var all sync.WaitGroup
			for worker := range uint64(16) {
				all.Go(func() {
					r := rand.New(rand.NewPCG(seed, worker))
					for range 30 {
						id := int32(r.IntN(len(sizes)))
						dst := make([]byte, sizes[id])
						ctx, cancel := context.WithCancel(t.Context())
						if r.IntN(3) == 0 {
							ctx, cancel = context.WithTimeout(t.Context(),
								time.Duration(r.IntN(int(time.Second))))
						}
						began := time.Now()
						err := fetched(c, ctx, id, dst)
						cancel()
						if took := time.Since(began); took > 12*time.Second {
							t.Errorf("sample %d took %v: %v", id, took, err)
						}
						var said *FetchError
						if err != nil && !errors.As(err, &said) {
							t.Errorf("not a FetchError: %v", err)
						}
						if err == nil && !bytes.Equal(dst, h.samples[id]) {
							t.Errorf("sample %d has other bytes", id)
						}
					}
				})
			}
			all.Wait()
			mu.Lock()
			healthy = true
			mu.Unlock()
			healthySince := time.Now()
			for fetched(c, t.Context(), 0, make([]byte, sizes[0])) != nil ||
				fetched(c, t.Context(), 4, make([]byte, sizes[4])) != nil {
				if time.Since(healthySince) > 5*time.Minute {
					t.Fatal("fetches fail although the network is healthy")
				}
				time.Sleep(time.Second)
			}
			c.Close()
			s.Close()
		})
	}
}

// TestClientThatDoesNotReadIsDisconnected: until then it does not delay other clients.
func TestClientThatDoesNotReadIsDisconnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		lost := make(chan error, 2)
		s := NewServer(node(0), newHolder(make([]int, 64)...), ServerOptions{
			Reading: 2, ReadingPerConn: 2, Timeout: 3 * time.Second,
			Lost: func(_ int, err error) { lost <- err },
		})
		go s.Serve(t.Context(), p)
		conn, err := p.dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := node(2).greet(t.Context(), conn, 0, 64, time.Second); err != nil {
			t.Fatal(err)
		}
		var b []byte
		for tag := range uint32(32) {
			b = wire.AppendRequest(b, wire.Request{Tag: tag, Sample: int32(2*tag + 1)})
		}
		conn.Write(wire.AppendFrame(nil, wire.Header{Kind: wire.KindRequest}, b))
		synctest.Wait()
		c := NewClient(node(1), 0, p.dial, ClientOptions{})
		began := time.Now()
		for id := range int32(64) {
			if err := fetched(c, t.Context(), id, nil); err != nil {
				t.Error(err)
			}
		}
		if time.Since(began) > time.Second {
			t.Error("the client that does not read delayed another")
		}
		if err := <-lost; err == nil {
			t.Error("it was not disconnected")
		}
		c.Close()
		s.Close()
	})
}

// TestReconnectDoesNotWait: not for the pause between attempts, not for an attempt that hangs, and
// not for a broken connection.
func TestReconnectDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		s := NewServer(node(0), newHolder(10), ServerOptions{})
		go s.Serve(t.Context(), p)
		var mu sync.Mutex
		var line *faulty
		way := "refuses"
		change := func(to string) {
			mu.Lock()
			way = to
			mu.Unlock()
		}
		c := NewClient(node(1), 0, func(ctx context.Context) (net.Conn, error) {
			mu.Lock()
			now := way
			mu.Unlock()
			switch now {
			case "refuses":
				return nil, io.ErrClosedPipe
			case "hangs":
				<-ctx.Done()
				return nil, ctx.Err()
			}
			conn, err := p.dial(ctx)
			line = &faulty{Conn: conn}
			return line, err
		}, ClientOptions{Timeout: time.Minute, KeepAlive: time.Hour, LastPause: time.Hour})
		fetch := func(when string) {
			t.Helper()
			change("connects")
			c.Reconnect()
			began := time.Now()
			if err := fetched(c, t.Context(), 0, make([]byte, 10)); err != nil ||
				time.Since(began) > time.Millisecond {
				t.Errorf("%s: after %v: %v", when, time.Since(began), err)
			}
		}
		fetch("before the first attempt")

		change("refuses")
		c.Reconnect()
		time.Sleep(2 * time.Hour) // the pauses have grown
		if err := fetched(c, t.Context(), 0, make([]byte, 10)); !errors.Is(err, ErrUnavailable) {
			t.Error(err)
		}
		fetch("in a pause")

		change("hangs")
		c.Reconnect()
		time.Sleep(time.Second)
		fetch("while an attempt hangs")

		line.mu.Lock()
		line.silent = true
		line.mu.Unlock()
		waits := make(chan error, 1)
		go func() { waits <- fetched(c, t.Context(), 0, make([]byte, 10)) }()
		synctest.Wait()
		fetch("with a broken connection")
		if err := <-waits; err != nil {
			t.Errorf("the call in flight did not continue: %v", err)
		}
		c.Close()
		c.Reconnect() // has no effect
		s.Close()
	})
}
