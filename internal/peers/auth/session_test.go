package auth

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
)

// sessions returns both ends of a TLS session over a pipe.
func sessions(t *testing.T) (client, server *tls.Conn) {
	t.Helper()
	config, err := DrawTLS()
	if err != nil {
		t.Fatal(err)
	}
	near, far := net.Pipe()
	client, server = tls.Client(near, config), tls.Server(far, config)
	t.Cleanup(func() { _ = near.Close(); _ = far.Close() })
	done := make(chan error, 1)
	go func() { done <- server.Handshake() }()
	if err := errors.Join(client.Handshake(), <-done); err != nil {
		t.Fatal(err)
	}
	return client, server
}

// TestBindingIsOfOneSession: it is equal at both ends of a TLS session, and differs between
// sessions and between protocols.
func TestBindingIsOfOneSession(t *testing.T) {
	client, server := sessions(t)
	other, _ := sessions(t)
	bind := func(c net.Conn, label string) []byte {
		b, err := Binding(c, label)
		if err != nil || len(b) != 32 {
			t.Fatalf("%d bytes, %v", len(b), err)
		}
		return b
	}
	here := bind(client, "EXPORTER-test")
	if !bytes.Equal(here, bind(server, "EXPORTER-test")) {
		t.Error("its ends disagree")
	}
	if bytes.Equal(here, bind(other, "EXPORTER-test")) {
		t.Error("another session has the same")
	}
	if bytes.Equal(here, bind(client, "EXPORTER-other")) {
		t.Error("another protocol has the same")
	}
	if b, err := Binding(client.NetConn(), "EXPORTER-test"); b != nil || err != nil {
		t.Errorf("without TLS: % x, %v", b, err)
	}
}

// TestSeverDoesNotWait: it closes the connection beneath TLS even if the other side does not read.
func TestSeverDoesNotWait(t *testing.T) {
	client, server := sessions(t)
	if err := Sever(client); err != nil {
		t.Error(err)
	}
	if n, err := server.NetConn().Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("%d bytes arrived, %v", n, err)
	}
	near, far := net.Pipe()
	defer far.Close()
	if err := Sever(near); err != nil {
		t.Error(err)
	}
	if _, err := near.Write([]byte{1}); err == nil {
		t.Error("the connection is open")
	}
}

// unclosable is a connection whose Close fails.
type unclosable struct{ net.Conn }

func (unclosable) Close() error { return syscall.EIO }

func TestSeverReportsErrors(t *testing.T) {
	if err := Sever(unclosable{}); err != syscall.EIO {
		t.Errorf("%v", err)
	}
}

func TestFaultsAreDistinguished(t *testing.T) {
	alert := func(text string) error {
		return &net.OpError{Op: "remote error", Err: errors.New(text)}
	}
	for name, c := range map[string]struct {
		err    error
		fault  Fault
		reason string
	}{
		"no record": {tls.RecordHeaderError{
			Msg: "first record does not look like a TLS handshake",
		}, NotTLS, "tls: first record does not look like a TLS handshake"},
		"the version alert": {
			alert("tls: protocol version not supported"), NotTLS,
			"tls: protocol version not supported",
		},
		"another alert": {alert("tls: bad certificate"), Rejected, "tls: bad certificate"},
		"its certificate": {&tls.CertificateVerificationError{
			Err: errors.New("unknown authority"),
		}, Untrusted, "unknown authority"},
		"end": {io.ErrUnexpectedEOF, CutShort, "unexpected EOF"},
		"time": {
			&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, CutShort,
			"read: i/o timeout",
		},
		"context": {context.Canceled, CutShort, "context canceled"},
		"reset": {&net.OpError{
			Op:  "read",
			Err: os.NewSyscallError("read", syscall.ECONNRESET),
		}, CutShort, "read: read: connection reset by peer"},
		"anything else": {errors.New("tls: no cipher suite"), Unknown, "tls: no cipher suite"},
	} {
		for _, err := range []error{c.err, fmt.Errorf("handshake: %w", c.err)} {
			if fault, reason := Diagnose(err); fault != c.fault ||
				!bytes.HasSuffix([]byte(reason.Error()), []byte(c.reason)) {
				t.Errorf("%s: %v is %d, because of %v", name, err, fault, reason)
			}
		}
	}
}
