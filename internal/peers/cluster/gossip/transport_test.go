package gossip

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/testkit"
	"github.com/hdmlp/hdmlp/internal/peers/auth"
	"github.com/hdmlp/hdmlp/internal/peers/cluster"
	"github.com/hdmlp/hdmlp/internal/peers/cluster/session"
)

var (
	jobSecret = auth.Secret("a secret of the job, long enough")
	another   = auth.Secret("another secret, just as long")
)

func newTransport(t testing.TB, secret auth.Secret) *transport {
	t.Helper()
	tr, err := listenTransport(cluster.OrSystem(nil), "127.0.0.1", 0, secret, "job", 3)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tr.Shutdown() })
	return tr
}

func addressOf(t *transport) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(t.port())) }

// TestAuthenticatedStreamIsBounded: a stream whose ends have the secret is opened, and either end
// reads at most the limit.
func TestAuthenticatedStreamIsBounded(t *testing.T) {
	here, there := newTransport(t, jobSecret), newTransport(t, jobSecret)
	near, err := there.DialTimeout(addressOf(here), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	far := <-here.StreamCh()
	defer far.Close()
	for side, way := range map[string][2]net.Conn{
		"listener": {far, near},
		"dialler":  {near, far},
	} {
		var said sync.WaitGroup
		said.Go(func() {
			// fails once the other side has read its limit
			_, _ = way[1].Write(make([]byte, here.limit+1))
		})
		n, err := io.Copy(io.Discard, io.LimitReader(way[0], here.limit+1))
		if n != here.limit || !errors.Is(err, errStreamLimit) {
			t.Errorf("%s: %d bytes were read of a stream that may have %d, then %v", side, n,
				here.limit, err)
		}
		said.Wait()
	}
	if here.tcp.Pending() != 0 {
		t.Errorf("%d streams are pending", here.tcp.Pending())
	}
}

// TestUnauthenticatedStreamIsRefused: memberlist gets no stream without a valid proof, whichever
// side lacks the secret.
func TestUnauthenticatedStreamIsRefused(t *testing.T) {
	here, other := newTransport(t, jobSecret), newTransport(t, another)
	if _, err := other.DialTimeout(addressOf(here), 5*time.Second); err == nil {
		t.Error("a dialler without the secret was accepted")
	}
	if _, err := here.DialTimeout(addressOf(other), 5*time.Second); err == nil {
		t.Error("a listener without the secret was accepted")
	}
	// A proof that was valid for another stream, and the listener's proof.
	for _, made := range []func(theirs, mine []byte) []byte{
		func(_, mine []byte) []byte {
			return here.transcript(auth.Nonce(), mine).Proof(labelDialler)
		},
		func(theirs, mine []byte) []byte {
			return here.transcript(theirs, mine).Proof(labelListener)
		},
	} {
		c, err := net.Dial("tcp", addressOf(here))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		// so that a stream that was accepted does not block the test
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		var greeting [proofGreeting]byte
		if _, err := io.ReadFull(c, greeting[:]); err != nil {
			t.Fatal(err)
		}
		mine := auth.Nonce()
		_, _ = c.Write(append(append(bytes.Clone(proofMagic), mine...),
			made(greeting[len(proofMagic):], mine)...))
		if n, err := io.Copy(io.Discard, c); n > 0 {
			t.Errorf("an invalid proof was answered with %d bytes, %v", n, err)
		}
	}
	select {
	case <-here.StreamCh():
		t.Error("memberlist was given an unauthenticated stream")
	default:
	}
}

// TestListenerWithoutTheSecretIsRefused: the dialler accepts no answer that can be given without
// the secret as the listener's proof, nor a proof that was valid for another stream.
func TestListenerWithoutTheSecretIsRefused(t *testing.T) {
	here := newTransport(t, jobSecret)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for name, answer := range map[string]func(mine, theirs, proof []byte) []byte{
		"nothing": func(_, _, _ []byte) []byte {
			return make([]byte, auth.ProofSize)
		},
		"the dialler's own proof": func(_, _, proof []byte) []byte { return proof },
		"a proof of another stream": func(_, theirs, _ []byte) []byte {
			return here.transcript(auth.Nonce(), theirs).Proof(labelListener)
		},
		"under another secret": func(mine, theirs, _ []byte) []byte {
			return auth.Transcript{
				Secret: another.Derive(labelStream, []byte("job")),
				Said:   [][]byte{mine, theirs},
			}.Proof(labelListener)
		},
	} {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			c, err := listener.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			mine := auth.Nonce()
			_, _ = c.Write(append(bytes.Clone(proofMagic), mine...))
			var words [proofGreeting + auth.ProofSize]byte
			if _, err := io.ReadFull(c, words[:]); err != nil {
				return
			}
			_, _ = c.Write(answer(mine, words[len(proofMagic):proofGreeting],
				words[proofGreeting:]))
		}()
		c, err := here.DialTimeout(listener.Addr().String(), time.Minute)
		if err == nil {
			c.Close()
		}
		if !errors.Is(err, session.ErrSecret) {
			t.Errorf("%s: %v", name, err)
		}
		<-ended
	}
}

// sealFor makes a datagram as memberlist does.
func sealFor(t testing.TB, key, plain []byte) []byte {
	t.Helper()
	block, err := aes.NewCipher(key)
	if err != nil {
		t.Fatal(err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	nonce := auth.Nonce()[:aead.NonceSize()]
	return aead.Seal(append([]byte{1}, nonce...), nonce, plain, nil)
}

// TestOnlySealedDatagramsArePassedOn: the others are dropped without an allocation.
func TestOnlySealedDatagramsArePassedOn(t *testing.T) {
	here := newTransport(t, jobSecret)
	key := jobSecret.Derive(labelGossip, []byte("job"))
	right := sealFor(t, key, []byte("ping"))
	forged := [][]byte{
		{},
		{1},
		[]byte("garbage"), right[:len(right)-1], append([]byte{0}, right[1:]...),
		sealFor(t, another.Derive(labelGossip, []byte("job")), []byte("ping")),
		bytes.Repeat([]byte{1}, 1400), bytes.Repeat([]byte{1}, 60000),
		sealFor(t, key, make([]byte, datagramLimit)),
	}
	c, err := net.Dial("udp", addressOf(here))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, b := range append(forged, right) {
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	if p := <-here.PacketCh(); !bytes.Equal(p.Buf, right) ||
		p.From.String() != c.LocalAddr().String() {
		t.Errorf("received % x from %v", p.Buf, p.From)
	}
	var scratch [datagramLimit]byte
	for _, b := range forged {
		b = b[:min(len(b), datagramLimit)]
		if here.sealed(b, scratch[:0]) {
			t.Errorf("% x was accepted", b[:min(len(b), 40)])
		}
		if n := testing.AllocsPerRun(100, func() { here.sealed(b, scratch[:0]) }); n > 0 {
			t.Errorf("a forged datagram of %d bytes costs %v allocations", len(b), n)
		}
	}
}

// TestShutdownWithPendingInput: a transport whose streams and datagrams memberlist never took shuts
// down.
func TestShutdownWithPendingInput(t *testing.T) {
	here, there := newTransport(t, jobSecret), newTransport(t, jobSecret)
	// authenticated, and waiting to be taken
	near, err := there.DialTimeout(addressOf(here), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	silent, err := net.Dial("tcp", addressOf(here))
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if _, err := there.WriteTo(sealFor(t, jobSecret.Derive(labelGossip, []byte("job")),
		[]byte("x")), addressOf(here)); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "the silent connection is pending", func() bool {
		return here.tcp.Pending() == 1
	})
	_ = here.Shutdown() // returns
	if _, err := io.Copy(io.Discard, silent); err != nil && !errors.Is(err, io.EOF) {
		t.Log(err) // reset, or ended
	}
}

// FuzzChallenge: a dialler without the secret is refused, whatever it sends, and gets no more than
// a greeting.
func FuzzChallenge(f *testing.F) {
	f.Add([]byte{})
	f.Add(append(bytes.Clone(proofMagic), make([]byte, auth.NonceSize+auth.ProofSize)...))
	f.Add(append([]byte("HDMG\x02\x00\x00\x00"),
		make([]byte, auth.NonceSize+auth.ProofSize)...))
	f.Add([]byte("\x0a\x01\x3f\xff\xffmemberlist's"))
	here := newTransport(f, jobSecret)
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := net.Dial("tcp", addressOf(here))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.(*net.TCPConn).SetLinger(0)
		_, _ = c.Write(b)
		_ = c.(*net.TCPConn).CloseWrite()
		if n, _ := io.Copy(io.Discard, c); n > proofGreeting {
			t.Errorf("%d bytes were sent", n)
		}
	})
}
