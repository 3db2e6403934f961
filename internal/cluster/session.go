package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/proto"

	pb "github.com/hdmlp/hdmlp/internal/cluster/clusterpb"
	"github.com/hdmlp/hdmlp/internal/identity"
)

const (
	protocolVersion = 1
	maxPart         = 64 << 10             // of a message, in one frame
	maxFrame        = maxPart + 2<<10      // a frame
	maxMessage      = 2*MaxPayload + 1<<20 // a message, put together
)

// stream is either end of an Attend call.
type stream interface {
	Send(*pb.Frame) error
	Receive() (*pb.Frame, error)
}

// session is a stream whose other side has proven that it knows the secret. Send queues; one
// goroutine writes (pump), one reads (receive).
//
// The handshake: both sides draw a nonce. The node proves itself first, so that who only knocks at
// node 0's port learns nothing, not even something to try guesses of the secret on. Each proof
// covers both nonces, the node's number and the direction: it cannot be replayed, reflected, or
// passed off as another node's. Both directions' keys come from secret and nonces in the same way.
// Over TLS a proof also covers a secret of that TLS session, so that nobody can stand between,
// whatever the certificates are worth. Rejected: TLS with certificates as the only way, which no
// launcher hands out; a pre-shared-key mode of TLS, which crypto/tls does not have; certificates
// whose key comes from the secret, on which whoever knocks could try guesses of it. There is no
// forward secrecy without TLS.
type session struct {
	stream stream
	node   int // of the node's side
	in     *seal
	out    *seal
	box    *outbox[*pb.Message]
}

func nodeBytes(node uint32) []byte { return binary.LittleEndian.AppendUint32(nil, node) }

var (
	errSecret    = errors.New("the other side does not know the secret")
	errHandshake = errors.New("not HDMLP's handshake")
)

// stranger: who says that it is this node, and does not know the secret.
type stranger uint32

func (s stranger) Error() string { return errSecret.Error() }
func (s stranger) Unwrap() error { return errSecret }

// versionMismatch: the other side's version.
type versionMismatch uint32

func (v versionMismatch) Error() string {
	return fmt.Sprintf("version %d of the control protocol", uint32(v))
}

// ask sends a frame and waits for the answer.
func ask(s stream, f *pb.Frame) (*pb.Frame, error) {
	// EOF: the reason is to be received
	if err := s.Send(f); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return s.Receive()
}

// transcript is what both sides have said before they prove themselves: their nonces, and which
// node it is.
func transcript(secret identity.Secret, nodes, zeros []byte, node uint32,
	bound []byte,
) identity.Transcript {
	return identity.Transcript{
		Secret:  secret,
		Said:    [][]byte{nodes, zeros, nodeBytes(node)},
		Binding: bound,
	}
}

// greet is the node's side of the handshake. bound is asked when the connection is there.
func greet(s stream, secret identity.Secret, node int,
	bound func() ([]byte, error),
) (*session, error) {
	mine := identity.Nonce()
	f, err := ask(s,
		&pb.Frame{Kind: &pb.Frame_Hello{Hello: &pb.Hello{Version: protocolVersion, Nonce: mine}}})
	if err != nil {
		return nil, err
	}
	challenge := f.GetChallenge()
	switch {
	case challenge == nil:
		return nil, errHandshake
	case challenge.GetVersion() != protocolVersion:
		return nil, versionMismatch(challenge.GetVersion())
	case len(challenge.GetNonce()) != identity.NonceSize:
		return nil, errHandshake
	}
	theirs, n := challenge.GetNonce(), uint32(node)
	session, err := bound()
	if err != nil {
		return nil, err
	}
	both := transcript(secret, mine, theirs, n, session)
	proof := &pb.Proof{Node: n, Mac: both.Proof(labelJoin)}
	if f, err = ask(s, &pb.Frame{Kind: &pb.Frame_Proof{Proof: proof}}); err != nil {
		return nil, err
	}
	if !both.Proves(labelAccept, f.GetProof().GetMac()) {
		return nil, errSecret
	}
	return newSession(s, secret, node, mine, theirs, false), nil
}

// admit is node 0's side. proved is called once the node has proved itself, before it can know so;
// its error ends the handshake.
func admit(s stream, secret identity.Secret, bound []byte, proved func() error) (*session, error) {
	f, err := s.Receive()
	if err != nil {
		return nil, err
	}
	hello := f.GetHello()
	if hello == nil || len(hello.GetNonce()) != identity.NonceSize {
		return nil, errHandshake
	}
	theirs, mine := hello.GetNonce(), identity.Nonce()
	if err := s.Send(&pb.Frame{
		Kind: &pb.Frame_Challenge{Challenge: &pb.Hello{Version: protocolVersion, Nonce: mine}},
	}); err != nil {
		return nil, err
	}
	if hello.GetVersion() != protocolVersion {
		return nil, versionMismatch(hello.GetVersion())
	}
	if f, err = s.Receive(); err != nil {
		return nil, err
	}
	n := f.GetProof().GetNode()
	if f.GetProof() == nil {
		return nil, errHandshake
	}
	both := transcript(secret, theirs, mine, n, bound)
	if !both.Proves(labelJoin, f.GetProof().GetMac()) {
		return nil, stranger(n)
	}
	if err := proved(); err != nil {
		return nil, err
	}
	proof := &pb.Proof{Node: n, Mac: both.Proof(labelAccept)}
	if err := s.Send(&pb.Frame{Kind: &pb.Frame_Proof{Proof: proof}}); err != nil {
		return nil, err
	}
	return newSession(s, secret, int(n), theirs, mine, true), nil
}

func newSession(s stream, secret identity.Secret, node int, nodes, zeros []byte,
	isZero bool,
) *session {
	up := newSeal(secret.Derive(labelUp, nodes, zeros))
	down := newSeal(secret.Derive(labelDown, nodes, zeros))
	c := &session{stream: s, node: node, in: down, out: up, box: newOutbox[*pb.Message]()}
	if isZero {
		c.in, c.out = up, down
	}
	return c
}

// Send queues a message.
func (c *session) Send(m *pb.Message) { c.box.put(m) }

// Close ends the session after what was sent has gone out.
func (c *session) Close() { c.box.close() }

// pump writes what is queued until Close, done, or the stream's end.
func (c *session) pump(done <-chan struct{}) error {
	for {
		m, ok := c.box.take(done)
		if !ok {
			return nil
		}
		plain, err := proto.Marshal(m)
		if err != nil {
			return err
		}
		for first := true; first || len(plain) > 0; first = false {
			n := min(len(plain), maxPart)
			part := make([]byte, 1, n+1+32)
			if n < len(plain) {
				part[0] = 1
			}
			part = append(part, plain[:n]...)
			plain = plain[n:]
			if err := c.stream.Send(&pb.Frame{
				Kind: &pb.Frame_Sealed{Sealed: c.out.close(part)},
			}); err != nil {
				return err
			}
		}
	}
}

// receive waits for the next message.
func (c *session) receive() (*pb.Message, error) {
	var whole []byte
	for {
		f, err := c.stream.Receive()
		if err != nil {
			return nil, err
		}
		part, err := c.in.open(f.GetSealed())
		if err != nil {
			return nil, err
		}
		if len(part) == 0 || part[0] > 1 {
			return nil, errHandshake
		}
		if len(whole)+len(part) > maxMessage {
			return nil, &LimitError{"message", int64(len(whole) + len(part)), maxMessage}
		}
		whole = append(whole, part[1:]...)
		if part[0] == 0 {
			m := new(pb.Message)
			if err := proto.Unmarshal(whole, m); err != nil {
				return nil, fmt.Errorf("message of node %d: %w", c.node, err)
			}
			return m, nil
		}
	}
}
