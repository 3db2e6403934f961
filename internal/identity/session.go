package identity

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
)

// Binding is a secret of conn's TLS session, which its two ends alone know (RFC 8446, 7.5), for the
// protocol of this exporter label; nil without TLS. The TLS handshake must be over.
func Binding(conn net.Conn, label string) ([]byte, error) {
	session, ok := conn.(*tls.Conn)
	if !ok {
		return nil, nil
	}
	state := session.ConnectionState()
	return state.ExportKeyingMaterial(label, nil, NonceSize)
}

// Sever closes a connection at once. TLS would say goodbye first, which can wait for the other
// side.
func Sever(conn net.Conn) error {
	if session, ok := conn.(*tls.Conn); ok {
		conn = session.NetConn()
	}
	return conn.Close()
}

// Fault is what was wrong with a TLS handshake.
type Fault int

const (
	Unknown   Fault = iota // none of the others
	CutShort               // the connection ended, or time was up: that says nothing about TLS
	NotTLS                 // the other side does not speak TLS
	Rejected               // the other side does not accept this one: its alert
	Untrusted              // the other side's certificate is not accepted here
)

// Diagnose finds the fault in err, an error of a TLS handshake, or of the first Read after it: with
// TLS 1.3 what the listening side thinks of a client's certificate comes only then. reason is the
// part of err that says it.
func Diagnose(err error) (fault Fault, reason error) {
	var op *net.OpError
	var untrusted *tls.CertificateVerificationError
	alert := errors.As(err, &op) && op.Op == "remote error"
	switch {
	case errors.As(err, new(tls.RecordHeaderError)):
		return NotTLS, err
	case alert && op.Err.Error() == "tls: protocol version not supported":
		return NotTLS, op.Err
	case alert:
		return Rejected, op.Err
	case errors.As(err, &untrusted):
		return Untrusted, untrusted.Err
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.Canceled),
		errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return CutShort, err
	}
	return Unknown, err
}
