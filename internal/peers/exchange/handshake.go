package exchange

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/hdmlp/hdmlp/internal/peers/auth"
	"github.com/hdmlp/hdmlp/internal/peers/exchange/wire"
)

// The handshake. Each side identifies itself and draws a nonce (HELLO), then proves that it has the
// secret:
//
//	client                          server
//	HELLO  ---------------------------->
//	       <----------------------------  HELLO
//	       both compare; a difference ends the handshake, and each side names it
//	PROOF  ---------------------------->  checked in constant time
//	       <----------------------------  VERDICT: accepted, with PROOF; or the refusal
//
// A proof (auth.Transcript) covers both HELLOs entirely: nonces, identities, roles, windows,
// versions. So it cannot be used in another handshake, for another node, or in the other direction.
//
// The first eight bytes of a HELLO are the same in all versions, so that versions can be compared.
const (
	helloMagic  = "HDMX"
	helloFixed  = 8
	helloRest   = 48 // without the job's name
	verdictSize = 1 + auth.ProofSize

	roleClient = 1
	roleServer = 2

	labelClient  = "hdmlp exchange 5: proof of a client"
	labelServer  = "hdmlp exchange 5: proof of a server"
	labelBinding = "EXPORTER-hdmlp-exchange"
)

const (
	accepted      = 0
	refusedSecret = 1
	refusedBusy   = 2

	// Limit of what is read from a client before its proof: the HELLO and the proof, TLS and its
	// certificates.
	pendingBytes = 64 << 10
)

var errBusy = errors.New("too many connections of the node")

// HandshakeError is a difference between two nodes that prevents a connection. It is an ErrRefused.
type HandshakeError struct {
	Addr         string // the peer's
	What         string // "protocol", "version", "job", "node", "nodes", "secret"
	Mine, Theirs string // the values; empty if What is "secret"
}

func (e *HandshakeError) Error() string {
	switch e.What {
	case "secret":
		return fmt.Sprintf("%s: the job's secret differs: set the same secret on all nodes", e.Addr)
	case "protocol":
		return fmt.Sprintf("%s does not speak the sample exchange protocol, or only one side uses "+
			"TLS: it sent %s", e.Addr, e.Theirs)
	}
	return fmt.Sprintf("%s: %s differs: here %s, there %s", e.Addr, e.What, e.Mine, e.Theirs)
}

// Unwrap returns ErrRefused.
func (e *HandshakeError) Unwrap() error { return ErrRefused }

// hello is a HELLO.
type hello struct {
	version uint16
	role    uint8
	window  int
	node    int // the sender
	to      int // the receiver
	nodes   int
	nonce   [auth.NonceSize]byte
	job     string
}

func (h hello) append(b []byte) []byte {
	b = append(b, helloMagic...)
	b = binary.LittleEndian.AppendUint16(b, h.version)
	b = binary.LittleEndian.AppendUint16(b, uint16(helloRest+len(h.job)))
	b = append(b, h.role, 0)
	b = binary.LittleEndian.AppendUint16(b, uint16(h.window))
	b = binary.LittleEndian.AppendUint32(b, uint32(h.node))
	b = binary.LittleEndian.AppendUint32(b, uint32(h.to))
	b = binary.LittleEndian.AppendUint32(b, uint32(h.nodes))
	b = append(b, h.nonce[:]...)
	return append(b, h.job...)
}

// readHello reads a HELLO, and returns its bytes as well. Of another version it reads only the
// version.
func readHello(r io.Reader) (hello, []byte, error) {
	b := make([]byte, helloFixed, helloFixed+helloRest+maxJob)
	if _, err := io.ReadFull(r, b); err != nil {
		return hello{}, nil, err
	}
	if string(b[:4]) != helloMagic {
		return hello{}, nil, &HandshakeError{What: "protocol", Theirs: fmt.Sprintf("% x", b)}
	}
	h := hello{version: binary.LittleEndian.Uint16(b[4:])}
	if h.version != wire.Version {
		return h, b, nil
	}
	rest := int(binary.LittleEndian.Uint16(b[6:]))
	if rest < helloRest || rest > helloRest+maxJob {
		return h, nil, wire.Malformed("HELLO of %d bytes", rest)
	}
	b = b[:helloFixed+rest]
	if _, err := io.ReadFull(r, b[helloFixed:]); err != nil {
		return h, nil, err
	}
	h.role = b[8]
	h.window = int(binary.LittleEndian.Uint16(b[10:]))
	h.node = int(binary.LittleEndian.Uint32(b[12:]))
	h.to = int(binary.LittleEndian.Uint32(b[16:]))
	h.nodes = int(binary.LittleEndian.Uint32(b[20:]))
	copy(h.nonce[:], b[24:])
	h.job = string(b[helloFixed+helloRest:])
	if b[9] != 0 || (h.role != roleClient && h.role != roleServer) || h.window < 1 ||
		h.window > wire.MaxWindow {
		return h, nil, wire.Malformed("HELLO % x", b)
	}
	return h, b, nil
}

// compare returns the first difference between this side's HELLO and the other's.
func compare(mine, theirs hello) error {
	differ := func(what string, mine, theirs any) error {
		return &HandshakeError{What: what, Mine: fmt.Sprint(mine), Theirs: fmt.Sprint(theirs)}
	}
	switch {
	case theirs.version != mine.version:
		return differ("version", mine.version, theirs.version)
	case theirs.role == mine.role:
		return &HandshakeError{What: "protocol", Theirs: "a HELLO of the same role"}
	case theirs.job != mine.job:
		return differ("job", fmt.Sprintf("%q", mine.job), fmt.Sprintf("%q", theirs.job))
	case theirs.nodes != mine.nodes:
		return differ("nodes", mine.nodes, theirs.nodes)
	case theirs.to != mine.node:
		return differ("node", mine.node, theirs.to)
	case theirs.node != mine.to || theirs.node >= mine.nodes:
		return differ("node", mine.to, theirs.node)
	}
	return nil
}

// transcript is what both sides of conn have sent before their proofs.
func (id Identity) transcript(conn net.Conn, client, server []byte) (auth.Transcript, error) {
	bound, err := auth.Binding(conn, labelBinding)
	return auth.Transcript{Secret: id.Secret, Said: [][]byte{client, server}, Binding: bound},
		err
}

// greet performs the client's side of the handshake, and returns the window.
func (id Identity) greet(ctx context.Context, conn net.Conn, peer, window int,
	timeout time.Duration,
) (int, error) {
	granted := 0
	err := bounded(ctx, conn, timeout, func() error {
		mine := hello{
			version: wire.Version,
			role:    roleClient,
			window:  window,
			node:    id.Node,
			to:      peer,
			nodes:   id.Nodes,
			job:     id.Job,
		}
		if err := secure(ctx, conn, &mine); err != nil {
			return err
		}
		sent := mine.append(nil)
		if _, err := conn.Write(sent); err != nil {
			return err
		}
		theirs, got, err := readHello(conn)
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("it closed the connection before its HELLO; it may require TLS, or "+
				"have too many connections: %w", err)
		} else if err != nil {
			return err
		}
		if err := compare(mine, theirs); err != nil {
			return err
		}
		both, err := id.transcript(conn, sent, got)
		if err != nil {
			return err
		}
		if _, err := conn.Write(both.Proof(labelClient)); err != nil {
			return err
		}
		var verdict [verdictSize]byte
		if _, err := io.ReadFull(conn, verdict[:]); err != nil {
			return err
		}
		switch verdict[0] {
		case accepted:
		case refusedBusy:
			return fmt.Errorf("%w: it allows no further connection of node %d",
				ErrUnavailable, id.Node)
		default:
			return &HandshakeError{What: "secret"}
		}
		if !both.Proves(labelServer, verdict[1:]) {
			return &HandshakeError{What: "secret"}
		}
		granted = min(window, theirs.window)
		return nil
	})
	return granted, err
}

// welcome performs the server's side of the handshake, and returns the client's node and the
// window. admit is called when the client's proof was verified, before the verdict is sent; its
// error refuses the client: errBusy, if the node has too many connections.
func (id Identity) welcome(ctx context.Context, conn net.Conn, window int, timeout time.Duration,
	admit func(node int) error,
) (node, granted int, err error) {
	err = bounded(ctx, conn, timeout, func() error {
		theirs, got, err := readHello(conn)
		if err != nil {
			return err
		}
		mine := hello{
			version: wire.Version,
			role:    roleServer,
			window:  window,
			node:    id.Node,
			to:      theirs.node,
			nodes:   id.Nodes,
			job:     id.Job,
		}
		if err := secure(ctx, conn, &mine); err != nil {
			return err
		}
		sent := mine.append(nil)
		if _, err := conn.Write(sent); err != nil {
			return err
		}
		if err := compare(mine, theirs); err != nil {
			return err
		}
		both, err := id.transcript(conn, got, sent)
		if err != nil {
			return err
		}
		var proved [auth.ProofSize]byte
		if _, err := io.ReadFull(conn, proved[:]); err != nil {
			return err
		}
		var verdict [verdictSize]byte
		if !both.Proves(labelClient, proved[:]) {
			verdict[0], err = refusedSecret, &HandshakeError{What: "secret"}
		} else if err = admit(theirs.node); err == errBusy {
			verdict[0], err = refusedBusy,
				fmt.Errorf("%w: node %d has too many connections", ErrUnavailable,
					theirs.node)
		} else if err != nil {
			return err
		} else {
			copy(verdict[1:], both.Proof(labelServer))
			node, granted = theirs.node, min(window, theirs.window)
		}
		if _, werr := conn.Write(verdict[:]); err == nil {
			err = werr
		}
		return err
	})
	return node, granted, err
}

// secure completes the TLS handshake, if there is TLS, before the first byte, and draws the nonce.
func secure(ctx context.Context, conn net.Conn, h *hello) error {
	if session, ok := conn.(*tls.Conn); ok {
		if err := session.HandshakeContext(ctx); err != nil {
			return fmt.Errorf("TLS: %w", err)
		}
	}
	copy(h.nonce[:], auth.Nonce())
	return nil
}

// bounded runs a handshake within its time limit, and adds a kind and the peer's address to its
// error.
func bounded(ctx context.Context, conn net.Conn, timeout time.Duration, shake func() error) error {
	// The last deadline that is set applies, so a context that ends just now must set its own after
	// this one: AfterFunc starts after it.
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	err := shake()
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	addr := "a peer"
	if a := conn.RemoteAddr(); a != nil {
		addr = a.String()
	}
	var differs *HandshakeError
	switch fault, reason := auth.Diagnose(err); {
	case err == nil:
		return nil
	case errors.As(err, &differs):
		differs.Addr = addr
		return differs
	case fault == auth.NotTLS:
		var record tls.RecordHeaderError
		if errors.As(err, &record) {
			return &HandshakeError{
				Addr:   addr,
				What:   "protocol",
				Theirs: fmt.Sprintf("% x", record.RecordHeader),
			}
		}
		return &HandshakeError{Addr: addr, What: "protocol", Theirs: reason.Error()}
	case fault == auth.Untrusted, fault == auth.Rejected:
		return fmt.Errorf("%w: %s: %w", ErrRefused, addr, err)
	case errors.Is(err, wire.ErrFrame):
		return fmt.Errorf("%w: handshake with %s: %w", ErrCorrupt, addr, err)
	}
	return fmt.Errorf("%w: handshake with %s: %w", ErrUnavailable, addr, err)
}

// newSession wraps conn in TLS, if the identity has a TLS config.
func (id Identity) newSession(conn net.Conn, server bool) net.Conn {
	switch {
	case id.TLS == nil:
		return conn
	case server:
		return tls.Server(conn, id.TLS)
	default:
		return tls.Client(conn, id.TLS)
	}
}
