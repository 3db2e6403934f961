package auth

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
)

// Binding returns the channel binding of conn's TLS session: keying material that only its two ends
// know (RFC 8446, 7.5), for the protocol of the exporter label. It returns nil without TLS. The TLS
// handshake must be complete.
func Binding(conn net.Conn, label string) ([]byte, error) {
	session, ok := conn.(*tls.Conn)
	if !ok {
		return nil, nil
	}
	state := session.ConnectionState()
	return state.ExportKeyingMaterial(label, nil, NonceSize)
}

// Sever closes a connection at once, without TLS's close_notify, which can block on the other side.
func Sever(conn net.Conn) error {
	if session, ok := conn.(*tls.Conn); ok {
		conn = session.NetConn()
	}
	return conn.Close()
}

// Fault is the cause of a failed TLS handshake.
type Fault int

const (
	Unknown   Fault = iota // none of the others
	CutShort               // the connection ended or timed out, which is no evidence about TLS
	NotTLS                 // the other side does not use TLS
	Rejected               // the other side rejected this one: its alert
	Untrusted              // the other side's certificate was rejected here
)

// Diagnose returns the cause of err, an error of a TLS handshake or of the first Read after it:
// with TLS 1.3 a client learns only then whether the server accepted its certificate. reason is the
// part of err that describes the cause.
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
