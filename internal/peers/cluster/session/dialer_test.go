package session

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"sync"
	"testing"

	"github.com/hdmlp/hdmlp/internal/peers/auth/authtest"
	"github.com/hdmlp/hdmlp/internal/peers/cluster"
)

// piped is a network whose connections are pipes, and on which a test has their other ends.
type piped struct {
	cluster.Network
	far chan net.Conn
	err error
}

func (p piped) Dial(context.Context, string) (net.Conn, error) {
	if p.err != nil {
		return nil, p.err
	}
	near, far := net.Pipe()
	p.far <- far
	return near, nil
}

// TestBindingNeedsOneConnection checks that there is no channel binding without a connection, nor
// of a second one, whose binding the proof would not cover.
func TestBindingNeedsOneConnection(t *testing.T) {
	d := &trackingDialer{network: piped{far: make(chan net.Conn, 3)}}
	if _, err := d.bound(); err != ErrHandshake || d.local() != "" {
		t.Errorf("without a connection: %v, from %q", err, d.local())
	}
	first, err := d.dial(t.Context(), "tcp", "10.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	if b, err := d.bound(); b != nil || err != nil {
		t.Errorf("without TLS: % x, %v", b, err)
	}
	if _, err := d.dial(t.Context(), "tcp", "10.0.0.1:1"); err != nil {
		t.Fatal(err)
	}
	if _, err := d.bound(); err != ErrHandshake {
		t.Errorf("with two connections: %v", err)
	}
	d.close()
	if _, err := first.Write([]byte{1}); err == nil {
		t.Error("a connection is open after close")
	}
	if c, err := d.dial(t.Context(), "tcp", "10.0.0.1:1"); !errors.Is(err, net.ErrClosed) {
		t.Errorf("connected after close: %v, %v", c, err)
	}
	if d.failure() != nil {
		t.Errorf("failed with %v", d.failure())
	}
}

// TestFailureToConnectIsKept checks that the reason is there for the error that the node reports.
func TestFailureToConnectIsKept(t *testing.T) {
	why := errors.New("why")
	d := &trackingDialer{network: piped{err: why}}
	if _, err := d.dial(t.Context(), "tcp", "10.0.0.1:1"); err != why || d.failure() != why {
		t.Errorf("%v; kept is %v", err, d.failure())
	}
}

// TestServerNameIsTheHost checks which name the certificate of node 0 must have: the host's, unless
// the configuration names another.
func TestServerNameIsTheHost(t *testing.T) {
	pair, pool := authtest.Certificate(t)
	for name, want := range map[string]string{"": "127.0.0.9", "another": "another"} {
		n := piped{far: make(chan net.Conn, 1)}
		d := &trackingDialer{network: n, tls: &tls.Config{RootCAs: pool, ServerName: name}}
		var server sync.WaitGroup
		server.Go(func() {
			far := <-n.far
			defer far.Close()
			_ = tls.Server(far, &tls.Config{Certificates: []tls.Certificate{pair}}).Handshake()
		})
		_, err := d.dial(t.Context(), "tcp", "127.0.0.9:1")
		var differs x509.HostnameError
		if !errors.As(err, &differs) || differs.Host != want || d.failure() != err {
			t.Errorf("the certificate is compared with %q: %v; kept is %v", differs.Host, err,
				d.failure())
		}
		server.Wait()
	}
}

// rejected is a connection that the other side has ended with a TLS alert.
type rejected struct{ net.Conn }

func (rejected) Read([]byte) (int, error) { return 0, &net.OpError{Op: "remote error"} }

// stuck is a connection that cannot be closed properly.
type stuck struct {
	net.Conn
	err error
}

func (s stuck) Close() error { return s.err }

// TestDialerIsSafe checks that a dialer may be asked and closed while it connects and is read from.
func TestDialerIsSafe(t *testing.T) {
	d := &trackingDialer{network: piped{far: make(chan net.Conn, 8)}}
	near, far := net.Pipe()
	defer far.Close()
	read := &dialled{rejected{near}, near, d}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() { _, _ = d.dial(t.Context(), "tcp", "10.0.0.1:1") })
		all.Go(func() { d.local() })
		all.Go(func() { _, _ = d.bound() })
		all.Go(func() { _ = d.failure() })
		all.Go(func() {
			if _, err := read.Read(nil); err == nil {
				t.Error("no error of a connection that was rejected")
			}
		})
	}
	all.Go(d.close)
	all.Wait()
	if err := d.failure(); !errors.As(err, new(tlsError)) {
		t.Errorf("failed with %v", err)
	}
	why := errors.New("why")
	if err := (&dialled{raw: stuck{near, why}}).Close(); err != why {
		t.Errorf("closing: %v, want %v", err, why)
	}
	near.Close()
	d.close() // what was dialled after the first call
}
