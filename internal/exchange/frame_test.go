package exchange

import (
	"bytes"
	"context"
	"encoding/hex"
	"flag"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var rewrite = flag.Bool("rewrite", false, "write testdata anew")

// golden are the frames of docs/FORMATS.md, one of each kind.
func golden() map[string][]byte {
	nonce := func(first byte) (n [32]byte) {
		for i := range n {
			n[i] = first + byte(i)
		}
		return n
	}
	client := hello{version: Version, role: roleClient, window: 512, node: 1, to: 0, nodes: 4, nonce: nonce(0), job: "torchrun-29400"}.append(nil)
	server := hello{version: Version, role: roleServer, window: 512, node: 0, to: 1, nodes: 4, nonce: nonce(100), job: "torchrun-29400"}.append(nil)
	frame := func(h header, payload []byte) []byte { return appendFrame(nil, h, payload) }
	requests := appendRequest(nil, request{tag: 7, sample: 1234567, length: 112640})
	requests = appendRequest(requests, request{tag: 8, sample: 2, length: 5})
	return map[string][]byte{
		"hello-client": client,
		"hello-server": server,
		"proof-client": proof(secret, roleClient, client, server, nil),
		"verdict":      append([]byte{accepted}, proof(secret, roleServer, client, server, nil)...),
		"request":      frame(header{kind: kindRequest}, requests),
		"ask":          frame(header{kind: kindAsk}, []byte{1, 0, 0, 0, 2, 0, 0, 0}),
		"cancel":       frame(header{kind: kindCancel}, []byte{7, 0, 0, 0}),
		"ping":         frame(header{kind: kindPing}, nil),
		"sample":       frame(header{kind: kindSample, tag: 8, sample: 2}, []byte("bytes")),
		"failure":      frame(header{kind: kindFailure, code: codeFailed, tag: 7, sample: 1234567}, []byte("no such file")),
		"pong":         frame(header{kind: kindPong}, nil),
	}
}

// TestGolden: frames are what they were. Another outcome is another version.
func TestGolden(t *testing.T) {
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

func FuzzHeader(f *testing.F) {
	for name, b := range golden() {
		if len(b) >= headerSize && !strings.HasPrefix(name, "hello") {
			f.Add(b[:headerSize])
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < headerSize {
			return
		}
		for _, fromServer := range []bool{false, true} {
			h, err := parse(b, fromServer)
			if err != nil {
				continue
			}
			var again [headerSize]byte
			h.put(again[:], 0)
			if !bytes.Equal(again[:16], b[:16]) {
				t.Errorf("% x became % x", b, again)
			}
		}
	})
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
			t.Error("it returned bytes that were not there")
		}
		if h.version == Version && !bytes.Equal(h.append(nil), got) {
			t.Errorf("%+v was made of % x", h, got)
		}
	})
}

// script is a connection on which a peer says what stands in a script, and reads nothing.
type script struct {
	*bytes.Reader
	net.Conn
}

func (s script) Read(b []byte) (int, error)       { return s.Reader.Read(b) }
func (s script) Write(b []byte) (int, error)      { return len(b), nil }
func (s script) Close() error                     { return nil }
func (s script) SetDeadline(time.Time) error      { return nil }
func (s script) SetReadDeadline(time.Time) error  { return nil }
func (s script) SetWriteDeadline(time.Time) error { return nil }

// FuzzServer: whatever a client says behind its handshake, the connection ends, and nothing is left of it.
func FuzzServer(f *testing.F) {
	for _, name := range []string{"request", "ask", "cancel", "ping"} {
		f.Add(golden()[name])
	}
	f.Add(bytes.Join([][]byte{golden()["request"], golden()["cancel"], golden()["ping"], golden()["request"]}, nil))
	h := newHolder(5, 5, 5, 5)
	f.Fuzz(func(t *testing.T, b []byte) {
		s := NewServer(node(0), h, ServerOptions{})
		if err := newPeer(s, script{Reader: bytes.NewReader(b)}, 1, 16).run(context.Background()); err == nil {
			t.Error("it ended without a reason")
		}
		if got := s.Stats(); got.Reading != 0 {
			t.Errorf("%d reads are left", got.Reading)
		}
	})
}

// FuzzClient: whatever a server says behind its handshake, every call ends, and none with a wrong sample.
func FuzzClient(f *testing.F) {
	for _, name := range []string{"sample", "failure", "pong"} {
		f.Add(golden()[name])
	}
	f.Add(bytes.Join([][]byte{golden()["pong"], golden()["sample"], golden()["failure"]}, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		c := NewClient(node(1), 0, nil, ClientOptions{})
		l := newLink(c, script{Reader: bytes.NewReader(b)}, 16)
		dst := make([][]byte, 16)
		for tag := range l.calls {
			dst[tag] = make([]byte, 5)
			if tag%4 != 3 && !l.send(&l.calls[tag], int32(tag%3), dst[tag]) {
				t.Fatal("not sent")
			}
			if tag%4 == 2 {
				l.calls[tag].leave()
			}
		}
		if err := l.run(context.Background()); err == nil || err == io.EOF && len(b) > 0 && b[0] == 0 {
			t.Error("it ended without a reason")
		}
		for tag := range l.calls {
			c := &l.calls[tag]
			switch tag % 4 {
			case 0, 1:
				select {
				case <-c.done:
				default:
					t.Errorf("the call with tag %d never ended", tag)
				}
			case 2, 3:
				if !bytes.Equal(dst[tag], make([]byte, 5)) {
					t.Errorf("bytes were written for tag %d, for which nobody waits", tag)
				}
			}
		}
	})
}
