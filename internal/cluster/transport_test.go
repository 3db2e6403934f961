package cluster

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

	"github.com/hdmlp/hdmlp/internal/identity"
)

var (
	jobSecret = identity.Secret("a secret of the job, long enough")
	another   = identity.Secret("another secret, just as long")
)

func newTransport(t testing.TB, secret identity.Secret) *transport {
	t.Helper()
	tr, err := listenTransport(system{}, "127.0.0.1", 0, secret, "job", 3)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tr.Shutdown() })
	return tr
}

func addressOf(t *transport) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(t.port())) }

// TestStream: who knows the secret comes through, both ways, and only so much is read of him, by
// either side.
func TestStream(t *testing.T) {
	here, there := newTransport(t, jobSecret), newTransport(t, jobSecret)
	near, err := there.DialTimeout(addressOf(here), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	far := <-here.StreamCh()
	defer far.Close()
	for side, way := range map[string][2]net.Conn{
		"who listens": {far, near},
		"who dials":   {near, far},
	} {
		var said sync.WaitGroup
		said.Go(func() {
			// fails, where the other side has read enough
			_, _ = way[1].Write(make([]byte, here.most+1))
		})
		n, err := io.Copy(io.Discard, io.LimitReader(way[0], here.most+1))
		if n != here.most || !errors.Is(err, errStreamLimit) {
			t.Errorf("%s: %d bytes were read of a stream that may have %d, then %v", side, n,
				here.most, err)
		}
		said.Wait()
	}
	if here.tcp.Pending() != 0 {
		t.Errorf("%d streams are pending", here.tcp.Pending())
	}
}

// TestStreamOfStrangers: memberlist sees no stream whose proof is not right, whichever side is the
// stranger.
func TestStreamOfStrangers(t *testing.T) {
	here, stranger := newTransport(t, jobSecret), newTransport(t, another)
	if _, err := stranger.DialTimeout(addressOf(here), 5*time.Second); err == nil {
		t.Error("a stranger was let in")
	}
	if _, err := here.DialTimeout(addressOf(stranger), 5*time.Second); err == nil {
		t.Error("a stranger was believed")
	}
	// A proof that was right for another stream, and one that the listener would give.
	for _, made := range []func(theirs, mine []byte) []byte{
		func(_, mine []byte) []byte {
			return here.transcript(identity.Nonce(), mine).Proof(labelDialler)
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
		// nor does a stream that was let in keep the test
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		var greeting [proofGreeting]byte
		if _, err := io.ReadFull(c, greeting[:]); err != nil {
			t.Fatal(err)
		}
		mine := identity.Nonce()
		_, _ = c.Write(append(append(bytes.Clone(proofMagic), mine...),
			made(greeting[len(proofMagic):], mine)...))
		if n, err := io.Copy(io.Discard, c); n > 0 {
			t.Errorf("a proof that is not right was answered with %d bytes, %v", n, err)
		}
	}
	select {
	case <-here.StreamCh():
		t.Error("memberlist was given a stranger's stream")
	default:
	}
}

// TestListenerWithoutTheSecretIsNotBelieved: who dials takes no answer for the listener's proof
// that can be given without the secret, nor one that was right for another stream.
func TestListenerWithoutTheSecretIsNotBelieved(t *testing.T) {
	here := newTransport(t, jobSecret)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for name, answer := range map[string]func(mine, theirs, proof []byte) []byte{
		"nothing": func(_, _, _ []byte) []byte {
			return make([]byte, identity.ProofSize)
		},
		"the dialler's own proof": func(_, _, proof []byte) []byte { return proof },
		"a proof of another stream": func(_, theirs, _ []byte) []byte {
			return here.transcript(identity.Nonce(), theirs).Proof(labelListener)
		},
		"under another secret": func(mine, theirs, _ []byte) []byte {
			return identity.Transcript{
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
			mine := identity.Nonce()
			_, _ = c.Write(append(bytes.Clone(proofMagic), mine...))
			var words [proofGreeting + identity.ProofSize]byte
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
		if !errors.Is(err, errSecret) {
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
	nonce := identity.Nonce()[:aead.NonceSize()]
	return aead.Seal(append([]byte{1}, nonce...), nonce, plain, nil)
}

// TestDatagrams: only what the job's key has sealed is passed on, and the rest takes no memory.
func TestDatagrams(t *testing.T) {
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
		t.Errorf("from %v came % x", p.From, p.Buf)
	}
	var scratch [datagramLimit]byte
	for _, b := range forged {
		b = b[:min(len(b), datagramLimit)]
		if here.sealed(b, scratch[:0]) {
			t.Errorf("% x was taken", b[:min(len(b), 40)])
		}
		if n := testing.AllocsPerRun(100, func() { here.sealed(b, scratch[:0]) }); n > 0 {
			t.Errorf("a forged datagram of %d bytes takes memory %v times", len(b), n)
		}
	}
}

// TestShutdownUnderWay: a transport that memberlist never listened to ends all the same, whatever
// has come.
func TestShutdownUnderWay(t *testing.T) {
	here, there := newTransport(t, jobSecret), newTransport(t, jobSecret)
	near, err := there.DialTimeout(addressOf(here), 5*time.Second) // proved, and waits to be taken
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
	eventually(t, "the silent one has come", func() bool { return here.tcp.Pending() == 1 })
	_ = here.Shutdown() // returns
	if _, err := io.Copy(io.Discard, silent); err != nil && !errors.Is(err, io.EOF) {
		t.Log(err) // reset, or ended
	}
}

// FuzzChallenge: whatever who dials says first, he is turned away, and nothing more than a greeting
// is said.
func FuzzChallenge(f *testing.F) {
	f.Add([]byte{})
	f.Add(append(bytes.Clone(proofMagic), make([]byte, identity.NonceSize+identity.ProofSize)...))
	f.Add(append([]byte("HDMG\x02\x00\x00\x00"),
		make([]byte, identity.NonceSize+identity.ProofSize)...))
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
			t.Errorf("%d bytes were said", n)
		}
	})
}
