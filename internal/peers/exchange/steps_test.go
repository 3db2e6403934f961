package exchange

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/peers/auth"
	"github.com/hdmlp/hdmlp/internal/peers/exchange/wire"
)

// aHello has another value in each field.
func aHello() hello {
	return hello{
		version: wire.Version, role: roleServer, window: 3, node: 70001, to: 70002, nodes: 70003,
		nonce: [auth.NonceSize]byte{1, 2, 3, auth.NonceSize - 1: 9}, job: "a job",
	}
}

// TestHelloIsReadAsWritten checks each field, at its limits as well.
func TestHelloIsReadAsWritten(t *testing.T) {
	for _, change := range []func(h *hello){
		func(*hello) {},
		func(h *hello) { h.role = roleClient },
		func(h *hello) { h.window = 1 },
		func(h *hello) { h.window = wire.MaxWindow },
		func(h *hello) { h.job = "" },
		func(h *hello) { h.job = strings.Repeat("x", maxJob) },
	} {
		want := aHello()
		change(&want)
		sent := want.append(nil)
		got, text, err := readHello(bytes.NewReader(append(sent, "PROOF"...)))
		if err != nil || got != want || !bytes.Equal(text, sent) {
			t.Errorf("%+v, % x, %v; want %+v", got, text, err, want)
		}
		for n := range len(sent) {
			if _, _, err := readHello(bytes.NewReader(sent[:n])); err == nil {
				t.Errorf("%d of %d bytes are enough", n, len(sent))
			}
		}
	}
}

// TestMalformedHelloIsRefused checks each field outside its limits.
func TestMalformedHelloIsRefused(t *testing.T) {
	for name, change := range map[string]func(b []byte) []byte{
		"too short":          func(b []byte) []byte { b[6], b[7] = helloRest-1, 0; return b },
		"too long":           func(b []byte) []byte { b[6], b[7] = 49, 1; return append(b, b...) },
		"reserved byte":      func(b []byte) []byte { b[9] = 1; return b },
		"no role":            func(b []byte) []byte { b[8] = 0; return b },
		"unknown role":       func(b []byte) []byte { b[8] = 3; return b },
		"no window":          func(b []byte) []byte { b[10], b[11] = 0, 0; return b },
		"too large a window": func(b []byte) []byte { b[10], b[11] = 0xff, 0xff; return b },
		"one more than the largest": func(b []byte) []byte {
			b[10], b[11] = byte((wire.MaxWindow+1)&0xff), byte((wire.MaxWindow+1)>>8)
			return b
		},
	} {
		b := change(append(aHello().append(nil), make([]byte, 2*maxJob)...))
		if h, _, err := readHello(bytes.NewReader(b)); !errors.Is(err, wire.ErrFrame) {
			t.Errorf("%s: %+v, %v", name, h, err)
		}
	}
	var differs *HandshakeError
	b := aHello().append(nil)
	b[0] = 'X'
	if _, _, err := readHello(bytes.NewReader(b)); !errors.As(err, &differs) ||
		differs.What != "protocol" || !strings.HasPrefix(differs.Theirs, "58 44 4d 58") {
		t.Errorf("another protocol: %v", err)
	}
	b = aHello().append(nil)
	b[4]++
	b = b[:helloFixed] // what follows may have another form
	if h, text, err := readHello(bytes.NewReader(b)); err != nil || h.version != wire.Version+1 ||
		h.window != 0 || len(text) != helloFixed {
		t.Errorf("another version: %+v, %v", h, err)
	}
}

// TestFirstDifferenceIsNamed checks each field that both sides compare, and both values.
func TestFirstDifferenceIsNamed(t *testing.T) {
	for name, c := range map[string]struct {
		change             func(h *hello)
		what, mine, theirs string
	}{
		"version":            {func(h *hello) { h.version++ }, "version", "5", "6"},
		"role":               {func(h *hello) { h.role = roleClient }, "protocol", "", "same role"},
		"job":                {func(h *hello) { h.job = "b" }, "job", `"a"`, `"b"`},
		"nodes":              {func(h *hello) { h.nodes = 5 }, "nodes", "4", "5"},
		"for another node":   {func(h *hello) { h.to = 3 }, "node", "1", "3"},
		"from another node":  {func(h *hello) { h.node = 3 }, "node", "2", "3"},
		"from a node beyond": {func(h *hello) { h.node = 4 }, "node", "2", "4"},
	} {
		mine := hello{version: wire.Version, role: roleClient, node: 1, to: 2, nodes: 4, job: "a"}
		theirs := hello{version: wire.Version, role: roleServer, node: 2, to: 1, nodes: 4, job: "a"}
		if err := compare(mine, theirs); err != nil {
			t.Fatal(err)
		}
		c.change(&theirs)
		var differs *HandshakeError
		if err := compare(mine, theirs); !errors.As(err, &differs) || differs.What != c.what ||
			differs.Mine != c.mine || !strings.Contains(differs.Theirs, c.theirs) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A server takes the node number from the client: it must be one of the job's.
	mine := hello{version: wire.Version, role: roleServer, node: 1, to: 4, nodes: 4}
	theirs := hello{version: wire.Version, role: roleClient, node: 4, to: 1, nodes: 4}
	if compare(mine, theirs) == nil {
		t.Error("node 4 of 4 was accepted")
	}
}

// failing is a connection that fails: after some bytes were read, or some writes.
type failing struct {
	net.Conn
	bytes, writes int
	deadlines     []time.Time
	refuses       bool // deadlines
	nowhere       bool // has no address
}

var errFaulty = errors.New("failing")

func (f *failing) Read(b []byte) (int, error) {
	if f.bytes == 0 {
		return 0, io.EOF
	}
	n, err := f.Conn.Read(b[:min(len(b), f.bytes)])
	f.bytes -= n
	return n, err
}

func (f *failing) Write(b []byte) (int, error) {
	if f.writes--; f.writes < 0 {
		return 0, errFaulty
	}
	return f.Conn.Write(b)
}

func (f *failing) SetDeadline(t time.Time) error {
	f.deadlines = append(f.deadlines, t)
	if f.refuses {
		return errFaulty
	}
	return f.Conn.SetDeadline(t)
}

func (f *failing) RemoteAddr() net.Addr {
	if f.nowhere {
		return nil
	}
	return f.Conn.RemoteAddr()
}

// shake performs a handshake of node 1 with node 0 over a pipe, whose ends a test may change, and
// returns what both report.
func shake(t *testing.T, client, server *failing) (window int, clientSays error, from int,
	granted int, serverSays error,
) {
	near, far := net.Pipe()
	client.Conn, server.Conn = near, far
	defer near.Close()
	defer far.Close()
	done := make(chan bool)
	go func() {
		from, granted, serverSays = node(0).welcome(t.Context(), server, 5, time.Minute,
			func(int) error { return nil })
		if serverSays != nil {
			far.Close()
		}
		close(done)
	}()
	window, clientSays = node(1).greet(t.Context(), client, 0, 8, time.Minute)
	if clientSays != nil {
		near.Close()
	}
	<-done
	return window, clientSays, from, granted, serverSays
}

const unlimited = 1 << 20

func sound() *failing { return &failing{bytes: unlimited, writes: unlimited} }

// TestHandshakeLeavesNoDeadline checks its result, and that the connection has no deadline then.
func TestHandshakeLeavesNoDeadline(t *testing.T) {
	client, server := sound(), sound()
	window, clientSays, from, granted, serverSays := shake(t, client, server)
	if window != 5 || clientSays != nil || from != 1 || granted != 5 || serverSays != nil {
		t.Errorf("window %d, %v; node %d, window %d, %v", window, clientSays, from, granted,
			serverSays)
	}
	for _, f := range []*failing{client, server} {
		if n := len(f.deadlines); n != 2 || f.deadlines[0].IsZero() || !f.deadlines[1].IsZero() {
			t.Errorf("deadlines %v", f.deadlines)
		}
	}
}

// TestCutHandshakeFails checks that neither side takes a handshake for complete that ended before
// its last byte, wherever it was cut, and that the errors report it.
func TestCutHandshakeFails(t *testing.T) {
	cut := func(name string, client, server *failing, wants ...error) {
		t.Helper()
		window, clientSays, from, granted, serverSays := shake(t, client, server)
		reported := map[error]bool{}
		for _, err := range []error{clientSays, serverSays} {
			for _, want := range wants {
				reported[want] = reported[want] || errors.Is(err, want)
			}
		}
		if clientSays == nil || !errors.Is(clientSays, ErrUnavailable) || window != 0 {
			t.Errorf("%s: the client reports window %d, %v", name, window, clientSays)
		}
		if serverSays != nil && !errors.Is(serverSays, ErrUnavailable) ||
			serverSays == nil && (from != 1 || granted != 5) {
			t.Errorf("%s: the server reports node %d, window %d, %v", name, from, granted,
				serverSays)
		}
		for _, want := range wants {
			if !reported[want] {
				t.Errorf("%s: neither reports %v: %v, %v", name, want, clientSays, serverSays)
			}
		}
	}
	hello := len(hello{job: "job"}.append(nil))
	for n := range hello + verdictSize {
		client := sound()
		client.bytes = n
		cut("a client reads less", client, sound())
	}
	for n := range hello + auth.ProofSize {
		server := sound()
		server.bytes = n
		cut("a server reads less", sound(), server)
	}
	for n := range 2 {
		client, server := sound(), sound()
		client.writes = n
		cut("a client's write fails", client, sound(), errFaulty)
		server.writes = n
		cut("a server's write fails", sound(), server, errFaulty)
	}
	client := sound()
	client.bytes, client.nowhere = 0, true
	_, clientSays, _, _, _ := shake(t, client, sound())
	if text := clientSays.Error(); !strings.Contains(text, "with a peer") ||
		!strings.Contains(text, "before its HELLO") {
		t.Errorf("the client reports %v", clientSays)
	}
	client = sound()
	client.bytes = 9
	_, clientSays, _, _, _ = shake(t, client, sound())
	if text := clientSays.Error(); !strings.Contains(text, "with pipe") ||
		strings.Contains(text, "before its HELLO") {
		t.Errorf("the client reports %v", clientSays)
	}
}

// TestHandshakeIsBounded checks that it ends with its time, and at once with its context, and does
// not begin without a deadline.
func TestHandshakeIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := func(ctx context.Context) (time.Duration, error) {
			near, far := net.Pipe()
			defer near.Close()
			defer far.Close()
			go io.Copy(io.Discard, far)
			begun := time.Now()
			_, err := node(1).greet(ctx, near, 0, 8, 3*time.Second)
			return time.Since(begun), err
		}
		if took, err := silent(t.Context()); took != 3*time.Second ||
			!errors.Is(err, ErrUnavailable) {
			t.Errorf("a silent peer: %v after %v", err, took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if took, err := silent(ctx); took != time.Second || !errors.Is(err, ErrUnavailable) {
			t.Errorf("cancelled: %v after %v", err, took)
		}
	})
	client := sound()
	client.refuses = true
	if _, err, _, _, _ := shake(t, client, sound()); !errors.Is(err, errFaulty) ||
		!errors.Is(err, ErrUnavailable) || len(client.deadlines) != 1 {
		t.Errorf("without a deadline: %v, %d calls", err, len(client.deadlines))
	}
}

// TestCancelledHandshakeFails checks that one that ended well after its context did has failed: its
// deadline may have been set again.
func TestCancelledHandshakeFails(t *testing.T) {
	why := errors.New("why")
	for _, own := range []error{nil, errFaulty} {
		ctx, cancel := context.WithCancelCause(t.Context())
		near, far := net.Pipe()
		err := bounded(ctx, near, time.Minute, func() error {
			cancel(why)
			return own
		})
		if want := map[error]error{nil: why, errFaulty: errFaulty}[own]; !errors.Is(err, want) {
			t.Errorf("after %v: %v, want %v", own, err, want)
		}
		near.Close()
		far.Close()
	}
}

// TestAdmissionDecides checks what both sides report if a node that has proved itself is not
// admitted.
func TestAdmissionDecides(t *testing.T) {
	other := errors.New("other")
	for admits, want := range map[error]error{errBusy: ErrUnavailable, other: other} {
		near, far := net.Pipe()
		done := make(chan error)
		go func() {
			from, granted, err := node(0).welcome(t.Context(), far, 5, time.Minute,
				func(n int) error {
					if n != 1 {
						t.Errorf("node %d is to be admitted, want 1", n)
					}
					return admits
				})
			if from+granted != 0 {
				t.Errorf("node %d is welcome, with window %d", from, granted)
			}
			far.Close()
			done <- err
		}()
		window, err := node(1).greet(t.Context(), near, 0, 8, time.Minute)
		if window != 0 || !errors.Is(err, ErrUnavailable) ||
			(admits == errBusy) != strings.Contains(err.Error(), "no further connection of node 1") {
			t.Errorf("%v: the client reports %d, %v", admits, window, err)
		}
		if err := <-done; !errors.Is(err, want) {
			t.Errorf("%v: the server reports %v", admits, err)
		}
		near.Close()
	}
}
