package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/hdmlp/hdmlp/internal/admission"
	"github.com/hdmlp/hdmlp/internal/identity"
	"github.com/hdmlp/hdmlp/internal/invariants"
)

// TLS is beneath HTTP/2, which is always spoken with prior knowledge: so both sides run its
// handshake themselves, and can tell what was wrong with it.

// Whoever speaks TLS begins with the first byte. The others are what those who mean it otherwise
// are sent, in their own language, so that they can say what is wrong.
const tlsHandshake = 0x16

var (
	// An alert: fatal, protocol_version.
	noTLS = []byte{0x15, 3, 1, 0, 2, 2, 70}
	// Of HTTP/2: empty SETTINGS, and GOAWAY with INADEQUATE_SECURITY.
	wantTLS = []byte{0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12}
)

const (
	onlyHere  = "this node asks for TLS, that one does not: set tls to the same on all nodes"
	onlyThere = "that node asks for TLS, this one does not: set tls to the same on all nodes"
)

// entrance is node 0's listener, which takes in who has not proved yet to know the secret. refused
// is told of who came in and cannot talk with this node by TLS.
type entrance struct {
	*admission.Listener
	tls     *tls.Config
	refused func(address, why string)
}

func (e *entrance) Accept() (net.Conn, error) {
	c, err := e.Listener.Accept()
	if err != nil {
		return nil, err
	}
	v := &visitor{Conn: c, raw: c.(*admission.Conn), entrance: e}
	if e.tls != nil {
		v.Conn = tls.Server(c, e.tls)
	}
	return v, nil
}

// visitor is a connection that came in.
type visitor struct {
	net.Conn
	raw      *admission.Conn
	entrance *entrance
	met      bool // Read was called; of the reader
}

// admit: who came in has proved to know the secret. A connection is admitted once; streams do not
// follow each other on one.
func (v *visitor) admit() error { return v.raw.Admit() }

// Read finds out first whether both sides mean the same by TLS.
func (v *visitor) Read(b []byte) (int, error) {
	first := !v.met
	v.met = true
	session, secure := v.Conn.(*tls.Conn)
	if first && secure {
		if err := session.Handshake(); err != nil {
			v.turnAway(err)
			return 0, err
		}
	}
	n, err := v.Conn.Read(b)
	if first && !secure && n > 0 && b[0] == tlsHandshake {
		v.answer(noTLS)
		v.entrance.refused(v.RemoteAddr().String(), onlyThere)
		return 0, errHandshake
	}
	return n, err
}

func (v *visitor) turnAway(err error) {
	why := tlsTrouble(err)
	if why == onlyHere {
		v.answer(wantTLS)
	}
	if why != "" {
		v.entrance.refused(v.RemoteAddr().String(), why)
	}
}

// answer sends a last word, and waits for the other side to go: it is lost where the connection is
// closed on what was not read.
func (v *visitor) answer(word []byte) {
	_ = v.raw.SetDeadline(time.Now().Add(flushTime))
	_, _ = v.raw.Write(word)
	_, _ = io.CopyN(io.Discard, v.raw, 1<<20)
}

// Close does not wait for the other side, as TLS's goodbye would.
func (v *visitor) Close() error { return v.raw.Close() }

// tlsTrouble says what was wrong with a TLS handshake; "" if it was cut short, which says nothing.
func tlsTrouble(err error) string {
	switch fault, reason := identity.Diagnose(err); fault {
	case identity.CutShort:
		return ""
	case identity.NotTLS:
		return onlyHere
	case identity.Rejected:
		return fmt.Sprintf("that node does not accept this one's certificate (%v)", reason)
	case identity.Untrusted:
		return fmt.Sprintf("that node's certificate is not accepted: %v", reason)
	default:
		return reason.Error()
	}
}

// trackingDialer makes the connection of one stay, with TLS where it is asked for, and remembers
// what became of it: closing it ends everything that HTTP keeps for it.
type trackingDialer struct {
	network Network
	tls     *tls.Config

	mu    invariants.Mutex[trackingDialer]
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

// tlsError: node 0 was reached, but not by TLS.
type tlsError struct{ error }

func (e tlsError) Unwrap() error { return e.error }

// dialled is a connection to node 0. With TLS 1.3 what node 0 thinks of this node's certificate
// comes when the handshake is over here, as an error of the first Read; HTTP would keep it to
// itself.
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

// Close does not wait for the other side, as TLS's goodbye would.
func (c *dialled) Close() error { return c.raw.Close() }

// local is this machine's address towards node 0.
func (d *trackingDialer) local() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.conns) == 0 {
		return ""
	}
	host, _, _ := net.SplitHostPort(d.conns[0].LocalAddr().String())
	return host
}

// bound is the connection's secret (identity.Binding).
func (d *trackingDialer) bound() ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.conns) != 1 {
		return nil, errHandshake
	}
	return identity.Binding(d.conns[0], labelBinding)
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
		_ = identity.Sever(c)
	}
}
