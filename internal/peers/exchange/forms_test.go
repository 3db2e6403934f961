package exchange

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/lib/digest"
	"github.com/hdmlp/hdmlp/internal/peers/exchange/wire"
)

// TestRequestsThatTakeFormsGetThem checks that a form is sent if the request takes one of its size,
// and else the sample, from memory and by Holder.Sample, over all transports, beside other answers.
func TestRequestsThatTakeFormsGetThem(t *testing.T) {
	overAllTransports(t, testRequestsThatTakeFormsGetThem)
}

func testRequestsThatTakeFormsGetThem(t *testing.T, ln net.Listener, dial dialer) {
	sizes := []int{100, 101, 40_000, 40_001, 100_000, 100_001, 5, 6}
	h := newHolder(sizes...)
	h.forms = map[int32][]byte{}
	for id, size := range sizes[:6] { // the last two samples have none
		h.forms[int32(id)] = bytesOf(int32(1000+id), size+size/5)
	}
	s := serve(t, ln, node(0), h, ServerOptions{})
	c := client(t, dial, ClientOptions{Conns: 2})
	var all sync.WaitGroup
	for range 4 {
		for id, size := range sizes {
			form := h.forms[int32(id)]
			for _, room := range []int{size, size + 1, len(form) - 1, len(form), 2 * size} {
				w := Want{Size: size, Most: max(room, 0), Unpack: room == 2*size}
				all.Go(func() {
					dst := make([]byte, max(room, size))
					want, kind := h.samples[id], uint8(0)
					if form != nil && room >= len(form) && !w.Unpack {
						want, kind = form, formKind
					}
					a, err := c.Fetch(context.Background(), int32(id), dst, w)
					if err != nil || a.Kind != kind || a.Size != len(want) ||
						a.Digest != digest.Of(want) || !bytes.Equal(dst[:a.Size], want) {
						t.Errorf("sample %d in %d bytes: %+v, want kind %d and %d bytes; %v", id, room, a,
							kind, len(want), err)
					}
					if rest := dst[len(want):]; !bytes.Equal(rest, make([]byte, len(rest))) {
						t.Errorf("sample %d in %d bytes: written beyond its end", id, room)
					}
				})
			}
		}
	}
	all.Wait()
	c.Close()
	s.Close()
	if n := h.holds.Load(); n != 0 {
		t.Errorf("%d samples are still held", n)
	}
}

// TestHolderThatSendsALongForm checks that a form that is longer than the request takes is not
// sent, whatever the Holder returns.
func TestHolderThatSendsALongForm(t *testing.T) {
	ln, dial := overTCP(t)
	serve(t, ln, node(0), long{newHolder(10, 10)}, ServerOptions{})
	c := client(t, dial, ClientOptions{})
	for id := range int32(2) {
		for most, want := range map[int]error{15: ErrCorrupt, 16: nil} {
			_, err := c.Fetch(t.Context(), id, make([]byte, most), Want{Size: 10, Most: most})
			if !errors.Is(err, want) {
				t.Errorf("sample %d in %d bytes: %v", id, most, err)
			}
		}
	}
}

// long is a Holder whose forms have 16 bytes, whatever a request takes.
type long struct{ *holder }

func (long) copy() Copy {
	form := bytesOf(0, 16)
	return Copy{Data: form, Kind: formKind, Digest: digest.Of(form)}
}

func (l long) Held(id int32, _ Want) (Copy, bool) { return l.copy(), id == 0 }

func (l long) Sample(_ context.Context, _ int32, _ Want, send func(Copy, bool) error) error {
	return send(l.copy(), false)
}

// TestFormsFromARogueServer checks that only a form whose checksum matches, and that is not longer
// than the request takes, is the answer to one that takes forms; whatever else the server sends is
// an error, and nothing is written beyond the buffer's end.
func TestFormsFromARogueServer(t *testing.T) {
	const size, most = 1000, 1500
	form := func(r wire.Request, size int) []byte {
		return wire.AppendFrame(nil,
			wire.Header{Kind: wire.KindForm, Code: formKind, Tag: r.Tag, Sample: r.Sample},
			bytesOf(r.Sample, size))
	}
	set := func(at int, to byte) func(r wire.Request) []byte {
		return func(r wire.Request) []byte {
			b := form(r, 9)
			b[at] = to
			return b
		}
	}
	altered := func(at int) func(r wire.Request) []byte {
		return func(r wire.Request) []byte {
			b := form(r, 1200)
			b[at] ^= 4
			return b
		}
	}
	for name, test := range map[string]struct {
		answer func(r wire.Request) []byte
		room   int
		kind   error
	}{
		"a form":             {func(r wire.Request) []byte { return form(r, 1200) }, most, nil},
		"the longest form":   {func(r wire.Request) []byte { return form(r, most) }, most, nil},
		"a form of one byte": {func(r wire.Request) []byte { return form(r, 1) }, most, nil},
		"the sample":         {good, most, nil},
		"a form not asked for": {
			func(r wire.Request) []byte { return form(r, size) }, size, ErrCorrupt,
		},
		"a longer form": {
			func(r wire.Request) []byte { return form(r, most+1) }, most, ErrCorrupt,
		},
		"a form of no bytes": {func(r wire.Request) []byte { return form(r, 0) }, most, ErrCorrupt},
		"a sample of a form's length": {func(r wire.Request) []byte {
			r.Length = 1200
			return good(r)
		}, most, ErrCorrupt},
		"another byte":  {altered(wire.HeaderSize + 700), most, ErrCorrupt},
		"another kind":  {altered(1), most, ErrCorrupt},
		"a wait":        {altered(2), most, ErrCorrupt},
		"no kind":       {set(1, 0), most, ErrCorrupt},
		"a huge length": {set(15, 0x7F), most, ErrCorrupt},
		"half a form": {
			func(r wire.Request) []byte { return form(r, 1200)[:600] }, most, ErrUnavailable,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPipes()
				go rogueServer(t.Context(), p, func(conn net.Conn, next func() wire.Request) {
					conn.Write(test.answer(next()))
					if test.kind != ErrUnavailable {
						next()
					}
				})
				c := NewClient(node(1), 0, p.dial,
					ClientOptions{Timeout: 2 * time.Second, Window: 16})
				buffer := make([]byte, 2*most)
				w := Want{Size: size, Most: test.room}
				if test.room == size {
					w.Most = 0
				}
				a, err := c.Fetch(t.Context(), 3, buffer[:test.room:test.room], w)
				if !errors.Is(err, test.kind) {
					t.Errorf("%+v, %v; want %v", a, err, test.kind)
				}
				if !bytes.Equal(buffer[test.room:], make([]byte, len(buffer)-test.room)) {
					t.Error("it wrote beyond the buffer's end")
				}
				c.Close()
				p.Close()
				time.Sleep(2 * time.Hour) // in the bubble: rogue servers end
			})
		})
	}
}
