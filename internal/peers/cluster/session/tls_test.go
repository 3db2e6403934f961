package session

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/hdmlp/hdmlp/internal/peers/auth"
	"github.com/hdmlp/hdmlp/internal/peers/auth/authtest"
)

// TestClientWithTLSIsRefused checks that a node without TLS ends a connection with it, and that
// both sides learn why.
func TestClientWithTLSIsRefused(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var refused string
	l := &tlsListener{
		auth.Listen(listener, PendingLimits(2, greetingBytes)), nil,
		func(_, why string) { refused = why },
	}
	defer l.Close()
	dialled := make(chan error, 1)
	go func() {
		_, err := tls.Dial("tcp", listener.Addr().String(), &tls.Config{InsecureSkipVerify: true})
		dialled <- err
	}()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if n, err := c.Read(make([]byte, 100)); n != 0 || !errors.Is(err, ErrHandshake) ||
		refused != onlyThere {
		t.Errorf("read %d bytes, %v; refused: %q", n, err, refused)
	}
	var alert *net.OpError
	if err := <-dialled; !errors.As(err, &alert) || alert.Op != "remote error" {
		t.Errorf("the client is told %v", err)
	}
}

// TestClientWithoutTLSIsRefused checks that a node with TLS ends a connection without it, and that
// both sides learn why.
func TestClientWithoutTLSIsRefused(t *testing.T) {
	pair, _ := authtest.Certificate(t)
	near, far := net.Pipe()
	var refused string
	l := &tlsListener{
		auth.Listen(&one{conn: near}, PendingLimits(2, greetingBytes)),
		&tls.Config{Certificates: []tls.Certificate{pair}},
		func(_, why string) { refused = why },
	}
	told := make(chan []byte, 1)
	go func() {
		defer far.Close()
		_, _ = io.WriteString(far, "PRI *") // as long as the header of a TLS record
		answer := make([]byte, len(wantTLS))
		_, _ = io.ReadFull(far, answer)
		told <- answer
	}()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if n, err := c.Read(make([]byte, 100)); n != 0 || err == nil || refused != onlyHere {
		t.Errorf("read %d bytes, %v; refused: %q", n, err, refused)
	}
	if answer := <-told; !bytes.Equal(answer, wantTLS) {
		t.Errorf("the client is told % x", answer)
	}
}

// one is a listener that accepts a connection, and no other.
type one struct {
	net.Listener
	conn net.Conn
}

func (o *one) Accept() (net.Conn, error) {
	if o.conn == nil {
		return nil, net.ErrClosed
	}
	c := o.conn
	o.conn = nil
	return c, nil
}

// TestAcceptedConnectionFailsAsTheOneBelow checks the errors of a connection that ends before it
// has sent anything, is admitted after it was closed, and cannot be closed properly.
func TestAcceptedConnectionFailsAsTheOneBelow(t *testing.T) {
	near, far := net.Pipe()
	why := errors.New("why")
	l := &tlsListener{auth.Listen(&one{conn: stuck{near, why}},
		PendingLimits(2, greetingBytes)), nil, func(_, why string) { t.Error(why) }}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	far.Close()
	b := []byte{tlsHandshake}
	if n, err := c.Read(b); n != 0 || err != io.EOF {
		t.Errorf("read %d bytes, %v", n, err)
	}
	if err := c.Close(); err != why {
		t.Errorf("closing: %v, want %v", err, why)
	}
	if err := c.(*acceptedConn).admit(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("admitted after it was closed: %v", err)
	}
	near.Close()
}

// TestOnlyTheFirstByteSaysThatItIsTLS checks that a connection without TLS may carry any bytes
// after its first ones.
func TestOnlyTheFirstByteSaysThatItIsTLS(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	go func() {
		defer far.Close()
		for _, text := range []string{"first", "\x16second"} {
			if _, err := io.WriteString(far, text); err != nil {
				t.Error(err)
			}
		}
	}()
	got, err := io.ReadAll(&acceptedConn{Conn: near})
	if err != nil || string(got) != "first\x16second" {
		t.Errorf("%q, %v", got, err)
	}
}
