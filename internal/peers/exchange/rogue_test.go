package exchange

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/peers/exchange/wire"
)

// rogueServer is a server that passes the handshake, and then behaves as the test specifies.
func rogueServer(ctx context.Context, p *pipes,
	behave func(conn net.Conn, requests func() wire.Request),
) {
	for {
		conn, err := p.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			if _, _, err := node(0).welcome(ctx, conn, 16, time.Second, func(int) error {
				return nil
			}); err != nil {
				return
			}
			var waiting []wire.Request
			behave(conn, func() wire.Request {
				for len(waiting) == 0 {
					var head [wire.HeaderSize]byte
					if _, err := io.ReadFull(conn, head[:]); err != nil {
						runtime.Goexit() // the client has left: there is no request to answer
					}
					h, err := wire.Parse(head[:], false)
					if err != nil {
						panic(err)
					}
					b := make([]byte, h.Length)
					io.ReadFull(conn, b)
					for ; h.Kind == wire.KindRequest && len(b) > 0; b = b[wire.RequestSize:] {
						r, _ := wire.ParseRequest(b, 16)
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

func good(r wire.Request) []byte {
	return wire.AppendFrame(nil, wire.Header{Kind: wire.KindSample, Tag: r.Tag, Sample: r.Sample},
		bytesOf(r.Sample, int(r.Length)))
}

// TestFetchFromARogueServer: whatever an authenticated peer does, Fetch returns in time, with an
// error of the right kind.
func TestFetchFromARogueServer(t *testing.T) {
	const size = 1000
	tests := map[string]struct {
		behave func(conn net.Conn, next func() wire.Request)
		kind   error
	}{
		"hangs": {func(_ net.Conn, next func() wire.Request) {
			next()
			next()
		}, ErrUnavailable},
		"reads nothing": {func(net.Conn, func() wire.Request) {
			time.Sleep(time.Hour)
		}, ErrUnavailable},
		"closes":         {func(_ net.Conn, next func() wire.Request) { next() }, ErrUnavailable},
		"closes at once": {func(net.Conn, func() wire.Request) {}, ErrUnavailable},
		"sends garbage": {func(conn net.Conn, next func() wire.Request) {
			next()
			conn.Write(bytes.Repeat([]byte("garbage"), 9))
		}, ErrCorrupt},
		"another sample": {func(conn net.Conn, next func() wire.Request) {
			r := next()
			r.Sample++
			conn.Write(good(r))
		}, ErrCorrupt},
		"another length": {func(conn net.Conn, next func() wire.Request) {
			r := next()
			r.Length--
			conn.Write(good(r))
		}, ErrCorrupt},
		"a huge length": {func(conn net.Conn, next func() wire.Request) {
			b := good(next())
			b[15] = 0x7F
			conn.Write(b)
		}, ErrCorrupt},
		"a tag without a request": {func(conn net.Conn, next func() wire.Request) {
			r := next()
			r.Tag++
			conn.Write(good(r))
		}, ErrCorrupt},
		"a tag too large": {func(conn net.Conn, next func() wire.Request) {
			r := next()
			r.Tag = 1 << 31
			conn.Write(good(r))
		}, ErrCorrupt},
		"another byte": {func(conn net.Conn, next func() wire.Request) {
			b := good(next())
			b[wire.HeaderSize+100] ^= 4
			conn.Write(b)
			next()
		}, ErrCorrupt},
		"another checksum": {func(conn net.Conn, next func() wire.Request) {
			b := good(next())
			b[17] ^= 4
			conn.Write(b)
			next()
		}, ErrCorrupt},
		"half a sample": {func(conn net.Conn, next func() wire.Request) {
			b := good(next())
			conn.Write(b[:len(b)/2])
		}, ErrUnavailable},
		"a byte per second": {func(conn net.Conn, next func() wire.Request) {
			for b := good(next()); len(b) > 0; b = b[1:] {
				if _, err := conn.Write(b[:1]); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		}, ErrUnavailable},
		"only PONGs": {func(conn net.Conn, next func() wire.Request) {
			next()
			for {
				if _, err := conn.Write(wire.AppendFrame(nil, wire.Header{Kind: wire.KindPong},
					nil)); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		}, ErrUnavailable},
		"a damaged failure": {func(conn net.Conn, next func() wire.Request) {
			b := wire.AppendFrame(nil,
				wire.Header{Kind: wire.KindFailure, Code: wire.CodeNotHeld, Tag: next().Tag},
				[]byte("text"))
			b[wire.HeaderSize] ^= 1
			conn.Write(b)
		}, ErrCorrupt},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPipes()
				go rogueServer(t.Context(), p, test.behave)
				c := NewClient(node(1), 0, p.dial,
					ClientOptions{Timeout: 2 * time.Second, Window: 16})
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
				time.Sleep(2 * time.Hour) // in the bubble: rogue servers end
			})
		})
	}
}

// TestClientThatViolatesTheProtocolIsDisconnected: even if it is authenticated; the server serves
// the others.
func TestClientThatViolatesTheProtocolIsDisconnected(t *testing.T) {
	one := wire.AppendRequest(nil, wire.Request{Tag: 0, Sample: 1, Length: 10})
	frame := func(k wire.Kind, b []byte) []byte {
		return wire.AppendFrame(nil, wire.Header{Kind: k}, b)
	}
	damaged := frame(wire.KindRequest, one)
	damaged[wire.HeaderSize] ^= 1
	huge := frame(wire.KindRequest, one)
	huge[15] = 0xFF
	for name, said := range map[string][]byte{
		"garbage":          bytes.Repeat([]byte("garbage"), 10),
		"a server's frame": frame(wire.KindPong, nil),
		"a tag twice":      frame(wire.KindRequest, append(bytes.Clone(one), one...)),
		"a tag too large": frame(wire.KindRequest,
			wire.AppendRequest(nil, wire.Request{Tag: 8, Sample: 1})),
		"a sample below zero": frame(wire.KindRequest,
			wire.AppendRequest(nil, wire.Request{Sample: -1})),
		"no form and only if": frame(wire.KindRequest,
			wire.AppendRequest(nil, wire.Request{Length: 1, Unpack: true})),
		"half a request":     frame(wire.KindRequest, one[:7]),
		"more than allowed":  frame(wire.KindCancel, make([]byte, 4*wire.MaxWindow+4)),
		"a damaged frame":    damaged,
		"a length too large": huge,
		"an unknown kind":    frame(2, []byte{1, 0, 0, 0}),
		"cancel too large":   frame(wire.KindCancel, []byte{8, 0, 0, 0}),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPipes()
				lost := make(chan error, 2)
				h := newHolder(10, 10)
				h.read = func(ctx context.Context, _ int32) error { <-ctx.Done(); return ctx.Err() }
				s := NewServer(node(0), h,
					ServerOptions{Lost: func(_ int, err error) { lost <- err }})
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
				if err := <-lost; !errors.Is(err, wire.ErrFrame) {
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
