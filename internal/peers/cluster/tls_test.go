package cluster

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/peers/auth"
	"github.com/hdmlp/hdmlp/internal/peers/auth/authtest"
)

func TestTLSFailuresNameTheirCause(t *testing.T) {
	pair, pool := authtest.Certificate(t)
	config := &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool}
	_, errs := newLab(t, 3).form(t.Context(), upTo(3), func(o *Options) { o.TLS = config })
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	demanding := config.Clone()
	demanding.ClientAuth, demanding.ClientCAs = tls.RequireAndVerifyClientCert, pool
	without := &tls.Config{RootCAs: pool}
	for name, c := range map[string]struct {
		zero, one      *tls.Config
		zeros, oneSays string
	}{
		"node 0 is not trusted": {
			config, &tls.Config{RootCAs: x509.NewCertPool()},
			"that node rejected this one's certificate (tls: bad certificate)",
			"that node's certificate was rejected: x509: certificate signed by unknown authority",
		},
		"node 1 is not trusted": {
			demanding, without,
			"tls: client didn't provide a certificate",
			"that node rejected this one's certificate (tls: certificate required)",
		},
		"only node 0 uses it": {config, nil, onlyHere, onlyThere},
		"only node 1 uses it": {nil, config, onlyThere, onlyHere},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, 2)
			l.wait = 4 * time.Second
			_, errs := l.form(t.Context(), upTo(2), func(o *Options) {
				o.TLS = []*tls.Config{c.zero, c.one}[o.Node]
			})
			var mine *TLSError
			if !errors.As(errs[1], &mine) || mine.Node != 1 || mine.Why != c.oneSays {
				t.Errorf("node 1: %v", errs[1])
			}
			var missing *MissingError
			if !errors.As(errs[0], &missing) || len(missing.Refused) != 1 ||
				!like(missing.Refused[0],
					"127.0.0.1:* was refused during the TLS handshake: "+c.zeros) {
				t.Errorf("node 0: %v", errs[0])
			}
		})
	}
}

// TestClientWithTLSIsRefused checks that a node without TLS ends a connection with it, and that
// both sides learn why.
func TestClientWithTLSIsRefused(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var refused string
	l := &tlsListener{
		auth.Listen(listener, pendingLimits(2, greetingBytes)), nil,
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
	if n, err := c.Read(make([]byte, 100)); n != 0 || !errors.Is(err, errHandshake) ||
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
		auth.Listen(&one{conn: near}, pendingLimits(2, greetingBytes)),
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
		pendingLimits(2, greetingBytes)), nil, func(_, why string) { t.Error(why) }}
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

// TestRelayIsDetected: where certificates prove nothing, a relay between two nodes cannot pass the
// handshake.
func TestRelayIsDetected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pair, _ := authtest.Certificate(t)
		config := &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true}
		l := newVirtualLab(t, 2)
		listener, err := l.network.Listen("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l.wait = 4 * time.Second
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for {
				c, err := listener.Accept()
				if err != nil {
					return
				}
				<-l.at
				l.relay(tls.Server(c, config), config)
			}
		}()
		clusters, errs := l.form(t.Context(), upTo(2), func(o *Options) {
			o.TLS = config
			if o.Node == 1 {
				o.Join = listener.Addr().String()
			}
		})
		for _, c := range clusters { // none, if the test passes
			if c != nil {
				_ = c.Close()
			}
		}
		listener.Close()
		<-ended
		if !errors.As(errs[1], new(*SecretError)) {
			t.Errorf("node 1: %v", errs[1])
		}
		var missing *MissingError
		if !errors.As(errs[0], &missing) || len(missing.Refused) != 1 ||
			!strings.Contains(missing.Refused[0], "secret") {
			t.Errorf("node 0: %v", errs[0])
		}
	})
}

// relay forwards one connection to node 0, both ways, until it ends.
func (l *lab) relay(from net.Conn, config *tls.Config) {
	defer from.Close()
	raw, err := l.network.Dial(l.t.Context(), l.join)
	if err != nil {
		return
	}
	onward := tls.Client(raw, config)
	defer onward.Close()
	done := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{from, onward}, {onward, from}} {
		go func() {
			_, _ = io.Copy(way[0], way[1])
			_ = way[0].Close()
			done <- struct{}{}
		}()
	}
	<-done
	<-done
}
