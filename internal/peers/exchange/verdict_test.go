package exchange

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/peers/auth"
	"github.com/hdmlp/hdmlp/internal/peers/auth/authtest"
	"github.com/hdmlp/hdmlp/internal/peers/exchange/wire"
)

// TestErrorsOfHandshakesHaveTheirKind checks what becomes of the errors of a handshake's steps.
func TestErrorsOfHandshakesHaveTheirKind(t *testing.T) {
	alert := func(text string) error {
		return &net.OpError{Op: "remote error", Err: errors.New(text)}
	}
	for name, c := range map[string]struct {
		err  error
		kind error
		what string // of a HandshakeError
		says string
	}{
		"a version alert": {
			alert("tls: protocol version not supported"), ErrRefused, "protocol", "not supported",
		},
		"another alert": {alert("tls: bad certificate"), ErrRefused, "", "pipe: remote error"},
		"no TLS": {
			tls.RecordHeaderError{RecordHeader: [5]byte{0x48, 0x44}},
			ErrRefused, "protocol",
			"48 44 00",
		},
		"a frame":      {wire.Malformed("HELLO"), ErrCorrupt, "", "handshake with pipe"},
		"a difference": {&HandshakeError{What: "job"}, ErrRefused, "job", "pipe: job differs"},
		"another":      {io.ErrUnexpectedEOF, ErrUnavailable, "", "handshake with pipe"},
	} {
		near, far := net.Pipe()
		err := bounded(t.Context(), near, time.Minute, func() error { return c.err })
		near.Close()
		far.Close()
		var differs *HandshakeError
		if errors.As(err, &differs) != (c.what != "") || differs != nil && differs.What != c.what ||
			!errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRefusalProvesNothing checks that a client without the secret gets no proof of the server's,
// on which it could test guesses.
func TestRefusalProvesNothing(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	done := make(chan error)
	go func() {
		_, _, err := node(0).welcome(t.Context(), far, 5, time.Minute, func(int) error {
			t.Error("admitted")
			return nil
		})
		far.Close()
		done <- err
	}()
	mine := hello{version: wire.Version, role: roleClient, window: 1, node: 1, nodes: 4, job: "job"}
	go near.Write(append(mine.append(nil), make([]byte, auth.ProofSize)...))
	if _, _, err := readHello(near); err != nil {
		t.Fatal(err)
	}
	said, err := io.ReadAll(near)
	want := append([]byte{refusedSecret}, make([]byte, auth.ProofSize)...)
	if err != nil || !bytes.Equal(said, want) {
		t.Errorf("the server says % x, %v", said, err)
	}
	var differs *HandshakeError
	if err := <-done; !errors.As(err, &differs) || differs.What != "secret" {
		t.Errorf("the server reports %v", err)
	}
}

// TestHandshakeWithoutBindingFails checks that neither side uses a TLS session without keying
// material.
func TestHandshakeWithoutBindingFails(t *testing.T) {
	pair, _ := authtest.Certificate(t)
	sound := &tls.Config{
		Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true,
		MaxVersion: tls.VersionTLS12,
	}
	unsound := sound.Clone()
	unsound.Renegotiation = tls.RenegotiateOnceAsClient
	for _, here := range []bool{true, false} {
		client, server := unsound, sound
		if !here {
			client, server = sound, unsound
		}
		near, far := net.Pipe()
		done := make(chan error)
		go func() {
			_, _, err := node(0).welcome(t.Context(), tls.Server(far, server), 5, time.Minute,
				func(int) error { return nil })
			far.Close()
			done <- err
		}()
		_, clientSays := node(1).greet(t.Context(), tls.Client(near, client), 0, 8, time.Minute)
		near.Close()
		serverSays := <-done
		if clientSays == nil || serverSays == nil {
			t.Fatalf("%v, %v", clientSays, serverSays)
		}
		if why := map[bool]error{true: clientSays, false: serverSays}[here]; !strings.Contains(
			why.Error(), "ExportKeyingMaterial") {
			t.Errorf("of the client %v: %v", here, why)
		}
	}
}
