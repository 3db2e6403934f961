package networktest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/bits"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// connected returns a connection from 10.0.0.2 to 10.0.0.1.
func connected(t *testing.T, n *Network) (near, far net.Conn) {
	t.Helper()
	l, err := n.Host("10.0.0.1").Listen(":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if near, err = n.Host("10.0.0.2").Dial(t.Context(), l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if far, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	if near.LocalAddr().String() != far.RemoteAddr().String() ||
		near.RemoteAddr().String() != l.Addr().String() {
		t.Errorf("%v to %v, %v to %v", near.LocalAddr(), near.RemoteAddr(), far.LocalAddr(),
			far.RemoteAddr())
	}
	return near, far
}

func TestBytesArriveInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := connected(t, New())
		sent := bytes.Repeat([]byte("0123456789"), wayBytes/4) // more than the buffer holds
		go func() {
			_, _ = near.Write(sent)
			_ = near.Close()
		}()
		if got, err := io.ReadAll(far); err != nil || !bytes.Equal(got, sent) {
			t.Errorf("%d bytes of %d, %v", len(got), len(sent), err)
		}
		if _, err := far.Write([]byte{1}); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("writing to a closed end: %v", err)
		}
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("reading from a closed end: %v", err)
		}
		_ = far.Close()
	})
}

func TestDeadlinesEndCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := connected(t, New())
		began := time.Now()
		_ = near.SetDeadline(began.Add(time.Minute))
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) ||
			time.Since(began) != time.Minute {
			t.Errorf("Read: after %v, %v", time.Since(began), err)
		}
		_ = near.SetWriteDeadline(time.Now().Add(time.Minute))
		if n, err := near.Write(make([]byte, wayBytes+1)); n != wayBytes ||
			!errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != 2*time.Minute {
			t.Errorf("Write: %d bytes after %v, %v", n, time.Since(began), err)
		}
		_ = near.SetDeadline(time.Time{})
		_, _ = far.Write([]byte{7})
		if n, err := near.Read(make([]byte, 9)); n != 1 || err != nil {
			t.Errorf("after the deadline was removed: %d, %v", n, err)
		}
	})
}

func TestAddressIsBoundOnce(t *testing.T) {
	n := New()
	host := n.Host("10.0.0.1")
	l, err := host.Listen("10.0.0.1:80")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := host.Listen("[::]:80"); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a port twice: %v", err)
	}
	if _, err := host.Listen("10.0.0.2:80"); !errors.Is(err, syscall.EADDRNOTAVAIL) {
		t.Errorf("another host's address: %v", err)
	}
	if _, err := n.Host("10.0.0.2").Listen(":80"); err != nil {
		t.Errorf("the same port of another host: %v", err)
	}
	if _, err := host.ListenPacket(":80"); err != nil {
		t.Errorf("the same port for datagrams: %v", err)
	}
	_ = l.Close()
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Close: %v", err)
	}
	_, err = n.Host("10.0.0.2").Dial(t.Context(), "10.0.0.1:80")
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("Dial after Close: %v", err)
	}
	if _, err := host.Listen(":80"); err != nil {
		t.Errorf("a port that was freed: %v", err)
	}
}

func TestNothingArrivesAtADisconnectedHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		near, far := connected(t, n)
		n.Cut("10.0.0.1")
		_, _ = near.Write([]byte{7})
		_ = near.Close()
		_ = far.SetReadDeadline(time.Now().Add(time.Hour))
		if _, err := far.Read(make([]byte, 9)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("it received something: %v", err)
		}
		within, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := n.Host("10.0.0.2").Dial(within, "10.0.0.1:1")
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it was reached: %v", err)
		}
		n.Join("10.0.0.1")
		_ = far.SetReadDeadline(time.Time{})
		if got, err := io.ReadAll(far); err != nil || !bytes.Equal(got, []byte{7}) {
			t.Errorf("after Join it received % x, %v", got, err)
		}
	})
}

// TestLinks checks what links do to a connection and to datagrams, each way.
func TestLinks(t *testing.T) {
	const here, there = "10.0.0.2", "10.0.0.1"
	for name, c := range map[string]struct {
		link    Link
		takes   time.Duration // for 1000 bytes from here to there; 0: at once
		arrives bool
	}{
		"none":  {Link{}, 0, true},
		"delay": {Link{Delay: time.Second}, time.Second, true},
		"rate":  {Link{Rate: 500}, 2 * time.Second, true},
		"both":  {Link{Delay: time.Second, Rate: 500}, 3 * time.Second, true},
		"cut":   {Link{Cut: true}, time.Hour, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := New()
			near, far := connected(t, n)
			n.Set(here, there, c.link)
			began := time.Now()
			_ = far.SetReadDeadline(began.Add(time.Hour))
			_, _ = near.Write(make([]byte, 1000))
			_, err := io.ReadFull(far, make([]byte, 1000))
			if took := time.Since(began); (err == nil) != c.arrives || took != c.takes {
				t.Errorf("%s: %v after %v, want %v", name, err, took, c.takes)
			}
			began = time.Now()
			_, _ = far.Write([]byte{1})
			if _, err := near.Read(make([]byte, 1)); err != nil || !began.Equal(time.Now()) {
				t.Errorf("%s: the way back: %v after %v", name, err, time.Since(began))
			}
			n.Set(here, there, Link{})
			_ = far.SetReadDeadline(time.Time{})
			if !c.arrives {
				if _, err := io.ReadFull(far, make([]byte, 1000)); err != nil {
					t.Errorf("%s: after the link was mended: %v", name, err)
				}
			}
			_, _ = near.Close(), far.Close()
		})
	}
}

// TestConnectionsBreak: those between two hosts by Reset, those of a host by Kill, which also ends
// what it listens on. A host that was killed and started again is another one.
func TestConnectionsBreak(t *testing.T) {
	for name, breaks := range map[string]func(n *Network, h *Host){
		"reset": func(n *Network, _ *Host) { n.Reset("10.0.0.1", "10.0.0.2") },
		"kill":  func(n *Network, h *Host) { n.Kill(h) },
	} {
		synctest.Test(t, func(t *testing.T) {
			n := New()
			host := n.Host("10.0.0.1")
			l, err := host.Listen(":80")
			if err != nil {
				t.Fatal(err)
			}
			near, err := n.Host("10.0.0.2").Dial(t.Context(), "10.0.0.1:80")
			if err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(time.Second, func() { breaks(n, host) })
			if _, err := near.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%s: Read: %v", name, err)
			}
			if _, err := near.Write(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%s: Write: %v", name, err)
			}
			_ = l.Close()
			_, err = host.Listen(":80")
			if killed := name == "kill"; killed != errors.Is(err, syscall.ENETDOWN) {
				t.Errorf("%s: Listen: %v", name, err)
			} else if _, err := n.Host("10.0.0.1").Listen(":81"); err != nil {
				t.Errorf("%s: Listen after the start: %v", name, err)
			}
			_ = near.Close()
		})
	}
}

// sockets returns sockets for datagrams, of 10.0.0.1 and 10.0.0.2.
func sockets(t *testing.T, n *Network) (here, there net.PacketConn) {
	t.Helper()
	here, err := n.Host("10.0.0.1").ListenPacket(":7")
	if err != nil {
		t.Fatal(err)
	}
	if there, err = n.Host("10.0.0.2").ListenPacket(":0"); err != nil {
		t.Fatal(err)
	}
	return here, there
}

func TestBitsFlip(t *testing.T) {
	n := New()
	near, far := connected(t, n)
	n.Set("10.0.0.2", "10.0.0.1", Link{Flips: 0.5})
	flipped := 0
	for range 200 {
		got := make([]byte, 3)
		if _, err := near.Write(make([]byte, 3)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(far, got); err != nil {
			t.Fatal(err)
		}
		ones := 0
		for _, b := range got {
			ones += bits.OnesCount8(b)
		}
		if ones > 1 {
			t.Errorf("%x arrived instead of zeros", got)
		}
		flipped += ones
	}
	if flipped < 60 || flipped > 140 {
		t.Errorf("a bit of %d of 200 writes was flipped, want half", flipped)
	}
	host := near.(*conn).host
	if conns, listeners, sockets := n.Open(host); conns != 1 || listeners+sockets > 0 {
		t.Errorf("%d connections, %d listeners, %d sockets are open", conns, listeners, sockets)
	}
	_, _ = near.Close(), far.Close()
	if conns, _, _ := n.Open(host); conns > 0 {
		t.Errorf("%d connections are open after Close", conns)
	}
}

func TestLossOfDatagrams(t *testing.T) {
	n := New()
	here, there := sockets(t, n)
	n.Set("10.0.0.2", "10.0.0.1", Link{Loss: 0.5})
	for range 200 {
		_, _ = there.WriteTo([]byte{1}, here.LocalAddr())
	}
	if got := len(here.(*socket).queue); got < 60 || got > 140 {
		t.Errorf("%d of 200 datagrams arrived over a link that loses half", got)
	}
}

func TestDatagramsArriveOrAreLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		here, there := sockets(t, n)
		say := func(words string) {
			if _, err := there.WriteTo([]byte(words), here.LocalAddr()); err != nil {
				t.Error(err)
			}
		}
		say("one")
		n.Cut("10.0.0.2")
		say("lost")
		n.Join("10.0.0.2")
		say("two")
		b := make([]byte, 100)
		for _, want := range []string{"one", "two"} {
			if got, from, err := here.ReadFrom(b); err != nil || string(b[:got]) != want ||
				from.String() != there.LocalAddr().String() {
				t.Errorf("%q from %v, %v", b[:got], from, err)
			}
		}
		_ = here.SetReadDeadline(time.Now().Add(time.Second))
		if _, _, err := here.ReadFrom(b); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
		_ = here.Close()
		say("to nothing")
		if _, _, err := here.ReadFrom(b); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
}
