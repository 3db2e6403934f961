package session

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/hdmlp/hdmlp/internal/lib/invariants"
	"github.com/hdmlp/hdmlp/internal/peers/auth"
	"github.com/hdmlp/hdmlp/internal/peers/cluster"
)

// TLS is beneath HTTP/2, which is always spoken with prior knowledge, so both sides run the TLS
// handshake themselves and can report why it failed.

// tlsHandshake is the first byte of a TLS handshake. noTLS and wantTLS are the answers to a client
// that expected the opposite, in that client's own protocol, so that it can report what is wrong.
const tlsHandshake = 0x16

var (
	// A TLS alert: fatal, protocol_version.
	noTLS = []byte{0x15, 3, 1, 0, 2, 2, 70}
	// HTTP/2: empty SETTINGS, and GOAWAY with INADEQUATE_SECURITY.
	wantTLS = []byte{0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12}
)

const (
	onlyHere  = "this node uses TLS, that one does not: set tls to the same value on all nodes"
	onlyThere = "that node uses TLS, this one does not: set tls to the same value on all nodes"
)

// tlsListener is node 0's listener, which accepts connections that are not authenticated yet.
// refused is called for a client whose TLS handshake failed.
type tlsListener struct {
	*auth.Listener
	tls     *tls.Config
	refused func(address, why string)
}

func (e *tlsListener) Accept() (net.Conn, error) {
	c, err := e.Listener.Accept()
	if err != nil {
		return nil, err
	}
	v := &acceptedConn{Conn: c, raw: c.(*auth.Conn), tlsListener: e}
	if e.tls != nil {
		v.Conn = tls.Server(c, e.tls)
	}
	return v, nil
}

// acceptedConn is an accepted connection.
type acceptedConn struct {
	net.Conn
	raw         *auth.Conn
	tlsListener *tlsListener
	started     bool // Read was called; used by the reader only
}

// admit marks the connection as authenticated. It is called once per connection, since a connection
// carries one stream.
func (v *acceptedConn) admit() error { return v.raw.Admit() }

// Read first checks that both sides use TLS, or that neither does.
func (v *acceptedConn) Read(b []byte) (int, error) {
	first := !v.started
	v.started = true
	session, secure := v.Conn.(*tls.Conn)
	if first && secure {
		if err := session.Handshake(); err != nil {
			v.reject(err)
			return 0, err
		}
	}
	n, err := v.Conn.Read(b)
	if first && !secure && n > 0 && b[0] == tlsHandshake {
		v.answer(noTLS)
		v.tlsListener.refused(v.RemoteAddr().String(), onlyThere)
		return 0, ErrHandshake
	}
	return n, err
}

func (v *acceptedConn) reject(err error) {
	why := tlsTrouble(err)
	if why == onlyHere {
		v.answer(wantTLS)
	}
	if why != "" {
		v.tlsListener.refused(v.RemoteAddr().String(), why)
	}
}

// answer sends a last message and waits for the client to close: the message is lost if a
// connection is closed with unread input.
func (v *acceptedConn) answer(word []byte) {
	_ = v.raw.SetDeadline(time.Now().Add(flushTime))
	_, _ = v.raw.Write(word)
	_, _ = io.CopyN(io.Discard, v.raw, 1<<20)
}

// Close does not wait for TLS's close_notify exchange.
func (v *acceptedConn) Close() error { return v.raw.Close() }

// tlsTrouble explains why a TLS handshake failed; "" if the connection was cut short, which
// explains nothing.
func tlsTrouble(err error) string {
	switch fault, reason := auth.Diagnose(err); fault {
	case auth.CutShort:
		return ""
	case auth.NotTLS:
		return onlyHere
	case auth.Rejected:
		return fmt.Sprintf("that node rejected this one's certificate (%v)", reason)
	case auth.Untrusted:
		return fmt.Sprintf("that node's certificate was rejected: %v", reason)
	default:
		return reason.Error()
	}
}

// trackingDialer dials the connection of one Attend call, with TLS if configured, and records its
// error. Closing the dialer severs the connection and with it everything that HTTP holds for it.
type trackingDialer struct {
	network cluster.Network
	tls     *tls.Config

	mu    invariants.Mutex[trackingDialer] // guards the following
	conns []net.Conn
	ended bool
	err   error
}

func (d *trackingDialer) dial(ctx context.Context, _, address string) (net.Conn, error) {
	within, cancel := context.WithTimeout(ctx, handshakeTime)
	raw, err := d.network.Dial(within, address)
	cancel()
	c := raw
	if err == nil && d.tls != nil {
		c, err = d.secure(ctx, raw, address)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		d.err = err
		return nil, err
	}
	if d.ended {
		_ = raw.Close()
		return nil, net.ErrClosed
	}
	d.conns = append(d.conns, c)
	return &dialled{c, raw, d}, nil
}

func (d *trackingDialer) secure(ctx context.Context, raw net.Conn,
	address string,
) (net.Conn, error) {
	config := d.tls
	if host, _, err := net.SplitHostPort(address); err == nil && config.ServerName == "" {
		config = config.Clone()
		config.ServerName = host
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	c := tls.Client(raw, config)
	if err := c.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, tlsError{err}
	}
	return c, nil
}

// tlsError is the error of a connection on which node 0 was reached but the TLS handshake failed.
type tlsError struct{ error }

func (e tlsError) Unwrap() error { return e.error }

// dialled is a connection to node 0. With TLS 1.3 the server's verdict on the client's certificate
// arrives after the client's handshake has completed, as an error of the first Read, which HTTP
// would not report.
type dialled struct {
	net.Conn
	raw    net.Conn
	dialer *trackingDialer
}

func (c *dialled) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if op := (*net.OpError)(nil); errors.As(err, &op) && op.Op == "remote error" {
		c.dialer.mu.Lock()
		c.dialer.err = tlsError{err}
		c.dialer.mu.Unlock()
	}
	return n, err
}

// Close does not wait for TLS's close_notify exchange.
func (c *dialled) Close() error { return c.raw.Close() }

// local returns the local address of the connection to node 0.
func (d *trackingDialer) local() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.conns) == 0 {
		return ""
	}
	host, _, _ := net.SplitHostPort(d.conns[0].LocalAddr().String())
	return host
}

// bound returns the connection's channel binding (auth.Binding).
func (d *trackingDialer) bound() ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.conns) != 1 {
		return nil, ErrHandshake
	}
	return auth.Binding(d.conns[0], labelBinding)
}

func (d *trackingDialer) failure() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

func (d *trackingDialer) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended = true
	for _, c := range d.conns {
		_ = auth.Sever(c)
	}
}
