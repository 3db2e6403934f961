package exchange

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"hash/crc32"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/digest"
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
		"proof-client": proof(secret, labelClient, client, server),
		"verdict":      append([]byte{accepted}, proof(secret, labelServer, client, server)...),
		"request":      frame(header{kind: kindRequest}, requests),
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

// TestLengthsHaveLimits: a header that announces more than its kind may have is no header, whichever side it comes from.
func TestLengthsHaveLimits(t *testing.T) {
	for k, limit := range map[kind]int{
		kindRequest: requestSize * MaxWindow, kindCancel: 4 * MaxWindow, kindPing: 0,
		kindSample: MaxSample, kindFailure: maxMessage, kindPong: 0,
	} {
		h := header{kind: k, length: uint32(limit)}
		unit := map[kind]uint32{kindRequest: requestSize, kindCancel: 4}[k]
		if k == kindFailure {
			h.code = codeFailed
		}
		var b [headerSize]byte
		h.put(b[:], 0)
		if _, err := parse(b[:], k >= kindSample); err != nil {
			t.Errorf("kind %d with %d bytes: %v", k, h.length, err)
		}
		h.length += max(unit, 1)
		h.put(b[:], 0)
		if _, err := parse(b[:], k >= kindSample); !errors.Is(err, errFrame) {
			t.Errorf("kind %d with %d bytes: %v", k, h.length, err)
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
			h.put(again[:], digest.Of(nil))
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
	io.Reader
	net.Conn
}

func (s script) Read(b []byte) (int, error)       { return s.Reader.Read(b) }
func (s script) Write(b []byte) (int, error)      { return len(b), nil }
func (s script) Close() error                     { return nil }
func (s script) SetDeadline(time.Time) error      { return nil }
func (s script) SetReadDeadline(time.Time) error  { return nil }
func (s script) SetWriteDeadline(time.Time) error { return nil }

// resealed gives the frames in b right checksums, as far as they are whole: a fuzzer does not find those, and what lies
// behind them is what it is to reach.
func resealed(b []byte) []byte {
	b = bytes.Clone(b)
	for at := 0; len(b)-at >= headerSize; {
		end := at + headerSize + int(binary.LittleEndian.Uint32(b[at+12:]))
		if end > len(b) {
			break
		}
		payload := digest.Of(b[at+headerSize : end])
		binary.LittleEndian.PutUint32(b[at+16:], crc32.Update(payload, castagnoli, b[at:at+16]))
		at = end
	}
	return b
}

// FuzzServer: whatever a client says behind its handshake, the connection ends, and nothing is left of it.
func FuzzServer(f *testing.F) {
	frame := func(h header, payload []byte) []byte { return appendFrame(nil, h, payload) }
	requests := func(all ...request) (b []byte) {
		for _, r := range all {
			b = appendRequest(b, r)
		}
		return frame(header{kind: kindRequest}, b)
	}
	held, read := request{tag: 0, sample: 0, length: 5}, request{tag: 1, sample: 1, length: 5}
	for _, said := range [][]byte{
		golden()["request"], golden()["cancel"], golden()["ping"],
		requests(held, read), requests(held, held), requests(read, request{tag: 2, sample: 3, length: 4}, request{tag: 3, sample: 9, length: 1}),
		requests(request{tag: 16}), requests(request{sample: -1}), requests(),
		bytes.Join([][]byte{requests(held, read), golden()["cancel"], golden()["ping"], frame(header{kind: kindCancel}, []byte{1, 0, 0, 0}), requests(held)}, nil),
		frame(header{kind: 2}, []byte{0, 0, 0, 0x80}), frame(header{kind: kindCancel}, []byte{16, 0, 0, 0}),
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
		if err := newPeer(s, script{Reader: bytes.NewReader(b)}, 1, 16).run(context.Background()); err == nil {
			t.Error("it ended without a reason")
		}
		if got := s.Stats(); got.Reading != 0 {
			t.Errorf("%d reads are left", got.Reading)
		}
	})
}

// filling is what a large sample's payload consists of in FuzzClient, whose inputs are to be small: it minimises them.
var filling = bytesOf(2, 2*inletSize)

// answers are frames that a server may send to the calls of FuzzClient, and some that it may not.
func answers() map[string][]byte {
	frame := func(h header, payload []byte) []byte { return appendFrame(nil, h, payload) }
	sample := func(tag uint32) []byte {
		id := int32(tag % 3)
		return frame(header{kind: kindSample, tag: tag, sample: id}, filling[:lengths[id]])
	}
	failure := func(tag uint32, c code, text string) []byte {
		return frame(header{kind: kindFailure, code: c, tag: tag, sample: int32(tag % 3)}, []byte(text))
	}
	all := map[string][]byte{
		"sample": sample(0), "sample-empty": sample(1), "sample-large": sample(5), "sample-large-nobody-waits-for": sample(2), "sample-nobody-waits-for": sample(6),
		"not-held": failure(0, codeNotHeld, ""), "failed": failure(1, codeFailed, "no such file"),
		"cancelled": failure(2, codeCancelled, ""), "length": failure(4, codeLength, "it has 7 bytes"),
		"tag-not-taken": sample(3), "tag-beyond-window": sample(16),
		"another-sample": frame(header{kind: kindSample, tag: 0, sample: 1}, []byte("bytes")),
		"another-length": frame(header{kind: kindSample, tag: 0}, []byte("byte")),
		"not-the-sample": frame(header{kind: kindSample, tag: 0}, []byte("bytes")),
	}
	all["all"] = bytes.Join([][]byte{golden()["pong"], sample(0), failure(1, codeFailed, "no"), sample(4), golden()["pong"], sample(6), failure(8, codeNotHeld, ""), sample(2)}, nil)
	all["twice"] = bytes.Join([][]byte{sample(0), sample(0)}, nil)
	for _, name := range []string{"sample", "failed"} {
		whole := all[name]
		all[name+"-cut"] = whole[:len(whole)-2]
		wrong := bytes.Clone(whole)
		wrong[len(wrong)-1] ^= 1
		all[name+"-wrong"] = wrong
	}
	return all
}

// lengths of the samples 0, 1 and 2 that FuzzClient asks for: some bytes, none, and more than the buffer of a connection.
var lengths = [3]int{5, 0, inletSize + 100}

// FuzzClient: whatever a server says behind its handshake, every call ends, and none that succeeds with another sample than the
// checksum was made of. What is said is b, and so much of filling; it comes in pieces of a size.
func FuzzClient(f *testing.F) {
	for _, b := range answers() {
		fill := uint32(0)
		if rest, large := bytes.CutSuffix(b, filling[:lengths[2]]); large {
			b, fill = rest, uint32(lengths[2])
		}
		f.Add(b, fill, uint16(0), uint8(0))
		f.Add(b, fill, uint16(0), uint8(1))
		f.Add(b, fill, uint16(headerSize+1), uint8(2))
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
			b = resealed(b)
		}
		c := NewClient(node(1), 0, nil, ClientOptions{})
		defer c.Close()
		var conn net.Conn = script{Reader: &pieces{bytes.NewReader(b), int(piece)}}
		if socket { // which is read from in another way
			conn = say(t, ln, b)
		}
		l := newLink(c, conn, 16)
		// Of 16 tags every fourth is free; of those that are under way every third is one whose caller has left.
		type asked struct {
			*call
			dst  []byte
			left bool
		}
		var calls []asked
		var free []uint32
		for range l.calls {
			tag := <-l.free
			a := asked{&l.calls[tag], make([]byte, lengths[tag%3]), tag%4 == 2}
			if tag%4 == 3 {
				free = append(free, tag)
				continue
			}
			l.flying.Add(1)
			if !l.send(a.call, int32(tag%3), a.dst) {
				t.Fatal("not sent")
			}
			if a.left && a.leave() {
				t.Fatal("it was told before anything came")
			}
			calls = append(calls, a)
		}
		for _, tag := range free {
			l.free <- tag
		}
		if err := l.run(t.Context()); err == nil {
			t.Error("it ended without a reason")
		}
		for _, a := range calls {
			switch {
			case a.left:
				if !bytes.Equal(a.dst, make([]byte, len(a.dst))) {
					t.Errorf("bytes were written for tag %d, for which nobody waits", a.tag)
				}
				continue
			case len(a.done) == 0:
				t.Errorf("the call with tag %d never ended", a.tag)
				continue
			}
			// A sample counts once its sum holds, as in fetch. The bytes of these frames are the fuzzer's: what must
			// hold is that a sum that holds is over what lies in the destination now.
			if err := <-a.done; err == nil && sealed(a.head[:], digest.Of(a.dst)) {
				h, err := parse(a.head[:], true)
				if err != nil || h.kind != kindSample || h.tag != a.tag || h.sample != int32(a.tag%3) || int(h.length) != len(a.dst) {
					t.Errorf("the call with tag %d for sample %d of %d bytes was given %+v", a.tag, a.tag%3, len(a.dst), h)
				}
				if !bytes.Contains(b, a.dst) {
					t.Errorf("the call with tag %d was given bytes that nobody sent", a.tag)
				}
			}
		}
		if n := l.flying.Load(); n < 0 {
			t.Errorf("%d calls are under way", n)
		}
	})
}

// pieces gives what it reads in pieces of a size, as a network does; whole, if that is 0.
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

// say makes a TCP connection on which a peer says b, and then no more.
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
	conn.(*net.TCPConn).SetLinger(0) // many follow each other, and their ports are to be free again
	go func() {
		peer.Write(b) // fails where the client has heard enough
		peer.(*net.TCPConn).CloseWrite()
	}()
	return conn
}
