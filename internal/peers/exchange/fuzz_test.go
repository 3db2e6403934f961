package exchange

import (
	"bytes"
	"context"
	"encoding/hex"
	"testing"

	"github.com/hdmlp/hdmlp/internal/lab/testkit"
	"github.com/hdmlp/hdmlp/internal/peers/exchange/exchangetest"
	"github.com/hdmlp/hdmlp/internal/peers/exchange/wire"
)

// golden returns the handshake of docs/FORMATS.md.
func golden() map[string][]byte {
	nonce := func(first byte) (n [32]byte) {
		for i := range n {
			n[i] = first + byte(i)
		}
		return n
	}
	client := hello{
		version: wire.Version,
		role:    roleClient,
		window:  512,
		node:    1,
		to:      0,
		nodes:   4,
		nonce:   nonce(0),
		job:     "torchrun-29400",
	}.append(nil)
	server := hello{
		version: wire.Version,
		role:    roleServer,
		window:  512,
		node:    0,
		to:      1,
		nodes:   4,
		nonce:   nonce(100),
		job:     "torchrun-29400",
	}.append(nil)
	return map[string][]byte{
		"hello-client": client,
		"hello-server": server,
		"proof-client": proof(secret, labelClient, client, server),
		"verdict":      append([]byte{accepted}, proof(secret, labelServer, client, server)...),
	}
}

// TestHandshakeMatchesGoldenFiles: the encoding does not change within a version.
func TestHandshakeMatchesGoldenFiles(t *testing.T) {
	for name, b := range golden() {
		testkit.Compare(t, name+".hex", hex.Dump(b))
	}
}

func FuzzHello(f *testing.F) {
	f.Add(golden()["hello-client"])
	f.Add(golden()["hello-server"])
	f.Fuzz(func(t *testing.T, b []byte) {
		h, got, err := readHello(bytes.NewReader(b))
		if err != nil {
			return
		}
		if !bytes.HasPrefix(b, got) {
			t.Error("it returned bytes that it did not read")
		}
		if h.version == wire.Version && !bytes.Equal(h.append(nil), got) {
			t.Errorf("%+v was decoded from % x", h, got)
		}
	})
}

// FuzzServer: whatever a client sends after its handshake, the connection ends and leaves no reads.
func FuzzServer(f *testing.F) {
	frame := func(h wire.Header, payload []byte) []byte { return wire.AppendFrame(nil, h, payload) }
	requests := func(all ...wire.Request) (b []byte) {
		for _, r := range all {
			b = wire.AppendRequest(b, r)
		}
		return frame(wire.Header{Kind: wire.KindRequest}, b)
	}
	cancel, ping := frame(wire.Header{Kind: wire.KindCancel}, []byte{7, 0, 0, 0}),
		frame(wire.Header{Kind: wire.KindPing}, nil)
	held, read := wire.Request{Tag: 0, Sample: 0, Length: 5},
		wire.Request{Tag: 1, Sample: 1, Length: 5}
	form, short := wire.Request{Tag: 4, Sample: 2, Length: 5, Most: 7},
		wire.Request{Tag: 5, Sample: 3, Length: 5, Most: 6}
	for _, said := range [][]byte{
		requests(wire.Request{Tag: 7, Sample: 1234567, Length: 112640},
			wire.Request{Tag: 8, Sample: 2, Length: 5}), cancel, ping,
		requests(held, read), requests(held, held), requests(form, short),
		requests(wire.Request{Tag: 6, Most: 8, Unpack: true}),
		requests(read, wire.Request{Tag: 2, Sample: 3, Length: 4},
			wire.Request{Tag: 3, Sample: 9, Length: 1}),
		requests(wire.Request{Tag: 16}), requests(wire.Request{Sample: -1}), requests(),
		bytes.Join([][]byte{
			requests(held, read), cancel, ping,
			frame(wire.Header{Kind: wire.KindCancel}, []byte{1, 0, 0, 0}), requests(held),
		}, nil),
		frame(wire.Header{Kind: 2}, []byte{0, 0, 0, 0x80}),
		frame(wire.Header{Kind: wire.KindCancel}, []byte{16, 0, 0, 0}),
	} {
		f.Add(said, true)
	}
	f.Add(requests(held)[:25], false)
	h := newHolder(5, 5, 5, 5)
	h.forms = map[int32][]byte{2: bytesOf(2, 7), 3: bytesOf(3, 7)}
	f.Fuzz(func(t *testing.T, b []byte, reseal bool) {
		if reseal {
			b = exchangetest.Resealed(b)
		}
		s := NewServer(node(0), h, ServerOptions{})
		if err := newServerConn(s, exchangetest.Script{Reader: bytes.NewReader(b)}, 1,
			16).run(context.Background()); err == nil {
			t.Error("it ended without a reason")
		}
		if got := s.Stats(); got.Reading != 0 {
			t.Errorf("%d reads are left", got.Reading)
		}
	})
}
