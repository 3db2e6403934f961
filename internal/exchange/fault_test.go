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
)

// crook is a server that proves itself, and then does as it likes.
func crook(ctx context.Context, p *pipes, behave func(conn net.Conn, requests func() request)) {
	for {
		conn, err := p.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			if _, _, err := node(0).welcome(ctx, conn, 16, time.Second, func(int) error { return nil }); err != nil {
				return
			}
			var waiting []request
			behave(conn, func() request {
				for len(waiting) == 0 {
					var head [headerSize]byte
					if _, err := io.ReadFull(conn, head[:]); err != nil {
						return request{sample: -1}
					}
					h, err := parse(head[:], false)
					if err != nil {
						panic(err)
					}
					b := make([]byte, h.length)
					io.ReadFull(conn, b)
					for ; h.kind == kindRequest && len(b) > 0; b = b[requestSize:] {
						r, _ := parseRequest(b, 16)
						waiting = append(waiting, r)
					}
				}
				r := waiting[0]
				waiting = waiting[1:]
				return r
			})
		}()
	}
}

func good(r request) []byte {
	return appendFrame(nil, header{kind: kindSample, tag: r.tag, sample: r.sample}, bytesOf(r.sample, int(r.length)))
}

// TestCrooks: whatever a peer does that knows the secret, Fetch returns in time
// with an error that says what to do.
func TestCrooks(t *testing.T) {
	const size = 1000
	tests := map[string]struct {
		behave func(conn net.Conn, next func() request)
		kind   error
	}{
		"hangs":           {func(_ net.Conn, next func() request) { next(); next() }, ErrUnavailable},
		"reads nothing":   {func(net.Conn, func() request) { time.Sleep(time.Hour) }, ErrUnavailable},
		"closes":          {func(_ net.Conn, next func() request) { next() }, ErrUnavailable},
		"closes at once":  {func(net.Conn, func() request) {}, ErrUnavailable},
		"sends garbage":   {func(conn net.Conn, next func() request) { next(); conn.Write(bytes.Repeat([]byte("garbage"), 9)) }, ErrCorrupt},
		"another sample":  {func(conn net.Conn, next func() request) { r := next(); r.sample++; conn.Write(good(r)) }, ErrCorrupt},
		"another length":  {func(conn net.Conn, next func() request) { r := next(); r.length--; conn.Write(good(r)) }, ErrCorrupt},
		"a huge length":   {func(conn net.Conn, next func() request) { b := good(next()); b[15] = 0x7F; conn.Write(b) }, ErrCorrupt},
		"a tag of nobody": {func(conn net.Conn, next func() request) { r := next(); r.tag++; conn.Write(good(r)) }, ErrCorrupt},
		"a tag too large": {func(conn net.Conn, next func() request) { r := next(); r.tag = 1 << 31; conn.Write(good(r)) }, ErrCorrupt},
		"another byte": {func(conn net.Conn, next func() request) {
			b := good(next())
			b[headerSize+100] ^= 4
			conn.Write(b)
			next()
		}, ErrCorrupt},
		"another checksum": {func(conn net.Conn, next func() request) { b := good(next()); b[17] ^= 4; conn.Write(b); next() }, ErrCorrupt},
		"half a sample": {func(conn net.Conn, next func() request) {
			b := good(next())
			conn.Write(b[:len(b)/2])
		}, ErrUnavailable},
		"a byte per second": {func(conn net.Conn, next func() request) {
			for b := good(next()); len(b) > 0; b = b[1:] {
				if _, err := conn.Write(b[:1]); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		}, ErrUnavailable},
		"only signs of life": {func(conn net.Conn, next func() request) {
			next()
			for {
				if _, err := conn.Write(appendFrame(nil, header{kind: kindPong}, nil)); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		}, ErrUnavailable},
		"a failure that is none": {func(conn net.Conn, next func() request) {
			b := appendFrame(nil, header{kind: kindFailure, code: codeNotHeld, tag: next().tag}, []byte("text"))
			b[headerSize] ^= 1
			conn.Write(b)
		}, ErrCorrupt},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPipes()
				go crook(t.Context(), p, test.behave)
				c := NewClient(node(1), 0, p.dial, ClientOptions{Timeout: 2 * time.Second, Window: 16})
				began := time.Now()
				err := fetched(c, t.Context(), 3, make([]byte, size))
				var said *FetchError
				if !errors.Is(err, test.kind) || !errors.As(err, &said) || said.Kind != test.kind {
					t.Errorf("%v, not %v", err, test.kind)
				}
				if took := time.Since(began); took > 6*time.Second {
					t.Errorf("it took %v", took)
				}
				c.Close()
				p.Close()
				time.Sleep(2 * time.Hour) // in the bubble: crooks come to their end
			})
		})
	}
}

// TestOneSlowSample: a peer that works, but not for this sample, keeps its connection.
func TestOneSlowSample(t *testing.T) {
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
			t.Error("the slow one still waits")
		}
		synctest.Wait()
		if got := c.Stats(); got.Connections != 1 || got.InFlight != 0 {
			t.Errorf("%+v", got)
		}
		c.Close()
		s.Close()
	})
}

// TestIdle: a connection that nobody uses stays, and one whose peer is gone without a word is replaced.
func TestIdle(t *testing.T) {
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

// faulty is a connection with faults.
type faulty struct {
	net.Conn
	mu     sync.Mutex
	r      *rand.Rand
	silent bool    // writes go nowhere
	delay  float64 // how likely a call takes its time,
	cut    float64 // ends the connection,
	flip   float64 // changes a bit
	proved int     // bytes that pass unharmed in either direction: the handshake
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

// TestFaults: whatever the line does, every Fetch returns in time, with the
// sample or with an error; and when the line is well again, so are fetches.
func TestFaults(t *testing.T) {
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
			s := NewServer(node(0), h, ServerOptions{Reading: 4, ReadingPerConn: 3, Timeout: 2 * time.Second})
			go s.Serve(t.Context(), p)
			var mu sync.Mutex
			well := false
			cutRate, flipRate := r.Float64()*0.01, r.Float64()*0.01
			c := NewClient(node(1), 0, func(ctx context.Context) (net.Conn, error) {
				conn, err := p.dial(ctx)
				mu.Lock()
				defer mu.Unlock()
				if well || err != nil {
					return conn, err
				}
				return &faulty{Conn: conn, r: rand.New(rand.NewPCG(r.Uint64(), 1)), delay: 0.1, cut: cutRate, flip: flipRate, proved: 200}, nil
			}, ClientOptions{Conns: 1 + r.IntN(3), Window: 1 + r.IntN(40), Timeout: 2 * time.Second, KeepAlive: time.Second})
			var all sync.WaitGroup
			for worker := range uint64(16) {
				all.Go(func() {
					r := rand.New(rand.NewPCG(seed, worker))
					for range 30 {
						id := int32(r.IntN(len(sizes)))
						dst := make([]byte, sizes[id])
						ctx, cancel := context.WithCancel(t.Context())
						if r.IntN(3) == 0 {
							ctx, cancel = context.WithTimeout(t.Context(), time.Duration(r.IntN(int(time.Second))))
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
							t.Errorf("sample %d is not what it was", id)
						}
					}
				})
			}
			all.Wait()
			mu.Lock()
			well = true
			mu.Unlock()
			wellAgain := time.Now()
			for fetched(c, t.Context(), 0, make([]byte, sizes[0])) != nil || fetched(c, t.Context(), 4, make([]byte, sizes[4])) != nil {
				if time.Since(wellAgain) > 5*time.Minute {
					t.Fatal("fetches fail although the line is well")
				}
				time.Sleep(time.Second)
			}
			c.Close()
			s.Close()
		})
	}
}

// TestClientsThatDoNotKeepToTheRules: a client that proved itself, and then does
// as it likes, is cut off; the server serves the others.
func TestClientsThatDoNotKeepToTheRules(t *testing.T) {
	one := appendRequest(nil, request{tag: 0, sample: 1, length: 10})
	frame := func(k kind, b []byte) []byte { return appendFrame(nil, header{kind: k}, b) }
	damaged := frame(kindRequest, one)
	damaged[headerSize] ^= 1
	huge := frame(kindRequest, one)
	huge[15] = 0xFF
	for name, said := range map[string][]byte{
		"garbage":             bytes.Repeat([]byte("garbage"), 10),
		"a server's frame":    frame(kindPong, nil),
		"a tag twice":         frame(kindRequest, append(bytes.Clone(one), one...)),
		"a tag too large":     frame(kindRequest, appendRequest(nil, request{tag: 8, sample: 1})),
		"a sample below zero": frame(kindRequest, appendRequest(nil, request{sample: -1})),
		"half a request":      frame(kindRequest, one[:7]),
		"more than allowed":   frame(kindCancel, make([]byte, 4*MaxWindow+4)),
		"a damaged frame":     damaged,
		"a length too large":  huge,
		"a kind that is none": frame(2, []byte{1, 0, 0, 0}),
		"cancel too large":    frame(kindCancel, []byte{8, 0, 0, 0}),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPipes()
				lost := make(chan error, 2)
				h := newHolder(10, 10)
				h.read = func(ctx context.Context, _ int32) error { <-ctx.Done(); return ctx.Err() }
				s := NewServer(node(0), h, ServerOptions{Lost: func(_ int, err error) { lost <- err }})
				go s.Serve(t.Context(), p)
				conn, err := p.dial(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				if _, err := node(1).greet(t.Context(), conn, 0, 8, time.Second); err != nil {
					t.Fatal(err)
				}
				go conn.Write(said)
				if err := <-lost; !errors.Is(err, errFrame) {
					t.Error(err)
				}
				c := NewClient(node(1), 0, p.dial, ClientOptions{})
				if err := fetched(c, t.Context(), 0, make([]byte, 10)); err != nil {
					t.Error(err)
				}
				c.Close()
				s.Close()
			})
		})
	}
}

// TestDeafClient: one that asks and does not read holds up nobody else, and is cut off.
func TestDeafClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		lost := make(chan error, 2)
		s := NewServer(node(0), newHolder(make([]int, 64)...), ServerOptions{
			Reading: 2, ReadingPerConn: 2, Timeout: 3 * time.Second, Lost: func(_ int, err error) { lost <- err },
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
			b = appendRequest(b, request{tag: tag, sample: int32(2*tag + 1)})
		}
		conn.Write(appendFrame(nil, header{kind: kindRequest}, b))
		synctest.Wait()
		c := NewClient(node(1), 0, p.dial, ClientOptions{})
		began := time.Now()
		for id := range int32(64) {
			if err := fetched(c, t.Context(), id, nil); err != nil {
				t.Error(err)
			}
		}
		if time.Since(began) > time.Second {
			t.Error("the deaf client held up another")
		}
		if err := <-lost; err == nil {
			t.Error("it was not cut off")
		}
		c.Close()
		s.Close()
	})
}

// TestPeerIsBack: a client that is told that its peer is back waits for nothing: not for the pause between attempts, not for an
// attempt that hangs, and not for a connection that leads nowhere.
func TestPeerIsBack(t *testing.T) {
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
			change("leads there")
			c.Reconnect()
			began := time.Now()
			if err := fetched(c, t.Context(), 0, make([]byte, 10)); err != nil || time.Since(began) > time.Millisecond {
				t.Errorf("%s: after %v: %v", when, time.Since(began), err)
			}
		}
		fetch("before the first attempt")

		change("refuses")
		c.Reconnect()
		time.Sleep(2 * time.Hour) // pauses have become long
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
		fetch("with a connection that leads nowhere")
		if err := <-waits; err != nil {
			t.Errorf("the call under way did not go on: %v", err)
		}
		c.Close()
		c.Reconnect() // nothing happens
		s.Close()
	})
}
