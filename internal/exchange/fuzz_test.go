package exchange

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"flag"
	"hash/crc32"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/digest"
	"github.com/hdmlp/hdmlp/internal/exchange/wire"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the files in testdata")

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
		file := filepath.Join("testdata", name+".hex")
		if *rewrite {
			if err := os.WriteFile(file, []byte(hex.Dump(b)), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got := hex.Dump(b); got != string(want) {
			t.Errorf("%s is\n%s, not\n%s", name, got, want)
		}
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

// script is a connection whose peer sends a script and reads nothing.
type script struct {
	io.Reader
	net.Conn
}

func (s script) Read(b []byte) (int, error)       { return s.Reader.Read(b) }
func (s script) Write(b []byte) (int, error)      { return len(b), nil }
func (s script) Close() error                     { return nil }
func (s script) SetDeadline(time.Time) error      { return nil }
func (s script) SetReadDeadline(time.Time) error  { return nil }
func (s script) SetWriteDeadline(time.Time) error { return nil }

// resealed corrects the checksums of the complete frames in b: a fuzzer does not find valid
// checksums, but has to reach the code after their verification.
func resealed(b []byte) []byte {
	b = bytes.Clone(b)
	for at := 0; len(b)-at >= wire.HeaderSize; {
		end := at + wire.HeaderSize + int(binary.LittleEndian.Uint32(b[at+12:]))
		if end > len(b) {
			break
		}
		payload := digest.Of(b[at+wire.HeaderSize : end])
		binary.LittleEndian.PutUint32(b[at+16:],
			crc32.Update(payload, crc32.MakeTable(crc32.Castagnoli), b[at:at+16]))
		at = end
	}
	return b
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
	for _, said := range [][]byte{
		requests(wire.Request{Tag: 7, Sample: 1234567, Length: 112640},
			wire.Request{Tag: 8, Sample: 2, Length: 5}), cancel, ping,
		requests(held, read), requests(held, held),
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
	f.Fuzz(func(t *testing.T, b []byte, reseal bool) {
		if reseal {
			b = resealed(b)
		}
		s := NewServer(node(0), h, ServerOptions{})
		if err := newServerConn(s, script{Reader: bytes.NewReader(b)}, 1,
			16).run(context.Background()); err == nil {
			t.Error("it ended without a reason")
		}
		if got := s.Stats(); got.Reading != 0 {
			t.Errorf("%d reads are left", got.Reading)
		}
	})
}
