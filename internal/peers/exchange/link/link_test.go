package link

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hdmlp/hdmlp/internal/model/routing"
	"github.com/hdmlp/hdmlp/internal/peers/exchange/exchangetest"
	"github.com/hdmlp/hdmlp/internal/peers/exchange/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// filling is the payload of large samples in FuzzClient. It is not part of the fuzzer's inputs,
// which have to stay small.
var filling = func() []byte {
	b := make([]byte, 2*inletSize)
	for i, r := 0, rand.New(rand.NewPCG(2, 1)); i < len(b); i++ {
		b[i] = byte(r.Uint32())
	}
	return b
}()

// answers returns valid and invalid answers to the calls of FuzzClient.
func answers() map[string][]byte {
	frame := func(h wire.Header, payload []byte) []byte { return wire.AppendFrame(nil, h, payload) }
	sample := func(tag uint32) []byte {
		id := int32(tag % 3)
		return frame(wire.Header{Kind: wire.KindSample, Tag: tag, Sample: id},
			filling[:lengths[id]])
	}
	form := func(tag uint32, size int) []byte {
		return frame(wire.Header{Kind: wire.KindForm, Code: 9, Tag: tag, Sample: int32(tag % 3)},
			filling[:size])
	}
	failure := func(tag uint32, c wire.Code, text string) []byte {
		return frame(wire.Header{Kind: wire.KindFailure, Code: c, Tag: tag, Sample: int32(tag % 3)},
			[]byte(text))
	}
	all := map[string][]byte{
		"sample": sample(0), "sample-empty": sample(1), "sample-large": sample(5),
		"sample-large-caller-left": sample(2), "sample-caller-left": sample(6),
		"not-held":      failure(0, wire.CodeNotHeld, ""),
		"failed":        failure(1, wire.CodeFailed, "no such file"),
		"cancelled":     failure(2, wire.CodeCancelled, ""),
		"length":        failure(4, wire.CodeLength, "it has 7 bytes"),
		"tag-not-taken": sample(3), "tag-beyond-window": sample(16),
		"another-sample": frame(wire.Header{Kind: wire.KindSample, Tag: 0, Sample: 1},
			[]byte("bytes")),
		"another-length": frame(wire.Header{Kind: wire.KindSample, Tag: 0}, []byte("byte")),
		"form":           form(0, forms[0]), "form-large": form(5, forms[2]),
		"form-caller-left":   form(6, 3),
		"form-not-asked-for": form(1, 1), "form-too-long": form(0, forms[0]+1),
		"not-the-sample": frame(wire.Header{Kind: wire.KindSample, Tag: 0}, []byte("bytes")),
	}
	pong := frame(wire.Header{Kind: wire.KindPong}, nil)
	all["all"] = bytes.Join([][]byte{
		pong, sample(0), failure(1, wire.CodeFailed, "no"), sample(4),
		pong, sample(6), form(9, 6), failure(8, wire.CodeNotHeld, ""), sample(2),
	}, nil)
	all["twice"] = bytes.Join([][]byte{sample(0), sample(0)}, nil)
	for _, name := range []string{"sample", "failed", "form"} {
		whole := all[name]
		all[name+"-cut"] = whole[:len(whole)-2]
		wrong := bytes.Clone(whole)
		wrong[len(wrong)-1] ^= 1
		all[name+"-wrong"] = wrong
	}
	return all
}

// lengths of the samples 0, 1 and 2 that FuzzClient fetches: some bytes, none, and more than a
// connection's buffer.
var lengths = [3]int{5, 0, inletSize + 100}

// forms are how many bytes forms of these samples may have: of the second one, none is taken.
var forms = [3]int{7, 0, inletSize + 300}

// FuzzClient: whatever a server sends after its handshake, every call ends, and a call succeeds
// only if the checksum matches its destination. The server sends b and then fill bytes of filling,
// in pieces of a size.
func FuzzClient(f *testing.F) {
	for _, b := range answers() {
		fill := uint32(0)
		for _, length := range []int{lengths[2], forms[2]} {
			if rest, large := bytes.CutSuffix(b, filling[:length]); large {
				b, fill = rest, uint32(length)
			}
		}
		f.Add(b, fill, uint16(0), uint8(0))
		f.Add(b, fill, uint16(0), uint8(1))
		f.Add(b, fill, uint16(wire.HeaderSize+1), uint8(2))
		f.Add(b, fill/2, uint16(0), uint8(3))
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { ln.Close() })
	f.Fuzz(func(t *testing.T, b []byte, fill uint32, piece uint16, habits uint8) {
		socket, reseal := habits&1 != 0, habits&2 != 0
		b = append(bytes.Clone(b), filling[:min(int(fill), len(filling))]...)
		if reseal {
			b = exchangetest.Resealed(b)
		}
		var conn net.Conn = exchangetest.Script{Reader: &pieces{bytes.NewReader(b), int(piece)}}
		if socket { // which is read with readv
			conn = say(t, ln, b)
		}
		l := New(conn, 16,
			Options{Timeout: 10 * time.Second, KeepAlive: 10 * time.Second, Counts: new(Counts)})
		// Of 16 tags every fourth is free, and every fourth belongs to a call whose caller has
		// left.
		type asked struct {
			*call
			dst  []byte
			left bool
		}
		var calls []asked
		var free []uint32
		for range l.calls {
			tag := <-l.free
			a := asked{&l.calls[tag], make([]byte, max(lengths[tag%3], forms[tag%3])), tag%4 == 2}
			if tag%4 == 3 {
				free = append(free, tag)
				continue
			}
			l.inFlight.Add(1)
			if !l.send(a.call, int32(tag%3), a.dst,
				routing.Want{Size: lengths[tag%3], Most: forms[tag%3]}) {
				t.Fatal("not sent")
			}
			if a.left && a.leave() {
				t.Fatal("the call ended before any input")
			}
			calls = append(calls, a)
		}
		for _, tag := range free {
			l.free <- tag
		}
		if err := l.Run(t.Context()); err == nil {
			t.Error("it ended without a reason")
		}
		for _, a := range calls {
			switch {
			case a.left:
				if !bytes.Equal(a.dst, make([]byte, len(a.dst))) {
					t.Errorf("bytes were written for tag %d, whose caller has left", a.tag)
				}
				continue
			case len(a.done) == 0:
				t.Errorf("the call with tag %d never ended", a.tag)
				continue
			}
			// A sample, or a form, counts if its checksum matches, as in Fetch. The fuzzer chose the
			// bytes of the frames; what must hold is that a matching checksum covers the current
			// contents of the destination.
			if err := <-a.done; err != nil {
				continue
			}
			if got, err := a.answer(a.dst); err == nil {
				h, err := wire.Parse(a.head[:], true)
				n, size := int(a.tag%3), got.Size
				if err != nil || h.Tag != a.tag || h.Sample != int32(n) ||
					got.Kind == 0 && (h.Kind != wire.KindSample || size != lengths[n]) ||
					got.Kind != 0 && (h.Kind != wire.KindForm || size == 0 || size > forms[n]) {
					t.Errorf("the call with tag %d for sample %d was given %+v: %+v", a.tag, n, h, got)
				}
				if !bytes.Contains(b, a.dst[:size]) {
					t.Errorf("the call with tag %d was given bytes that were not sent", a.tag)
				}
				if rest := a.dst[size:]; !bytes.Equal(rest, make([]byte, len(rest))) {
					t.Errorf("the call with tag %d was given bytes beyond its answer's", a.tag)
				}
			}
		}
		if n := l.inFlight.Load(); n < 0 {
			t.Errorf("%d calls are in flight", n)
		}
	})
}

// pieces limits reads to a size, as a network does; 0 is no limit.
type pieces struct {
	io.Reader
	size int
}

func (p *pieces) Read(b []byte) (int, error) {
	if p.size > 0 {
		b = b[:min(len(b), p.size)]
	}
	return p.Reader.Read(b)
}

// say returns a TCP connection whose peer sends b and then closes its side.
func say(t *testing.T, ln net.Listener, b []byte) net.Conn {
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	peer, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { peer.Close() })
	conn.(*net.TCPConn).SetLinger(0) // releases the port at once, since there are many connections
	go func() {
		peer.Write(b) // fails if the client has closed the connection
		peer.(*net.TCPConn).CloseWrite()
	}()
	return conn
}
