// Package session is one authenticated and sealed stream of messages between a node and node 0,
// over HTTP/2: Dial is the node's end, Server node 0's. The handshake, the sealing of frames, TLS
// and the encoding of messages, packs and errors are here; what the messages mean is not.
//
// Whoever has not proved that it has the secret is sent nothing about the job, and may send some
// kilobytes for some seconds (PendingLimits).
package session

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/proto"

	"github.com/hdmlp/hdmlp/internal/peers/auth"
	"github.com/hdmlp/hdmlp/internal/peers/cluster"
	pb "github.com/hdmlp/hdmlp/internal/peers/cluster/clusterpb"
	"github.com/hdmlp/hdmlp/internal/peers/cluster/outbox"
)

const (
	// Version is that of the control protocol.
	Version    = 2
	maxPart    = 64 << 10                     // of messages, in one frame
	maxFrame   = maxPart + 2<<10              // a frame
	maxMessage = 2*cluster.MaxPayload + 1<<20 // a message, reassembled
	// maxQueued is how many messages and packs may wait for a node. What all nodes send together is
	// in few of them, so a node with more has stopped taking them. It may connect again.
	maxQueued = 4096
)

// The first byte of a frame is the kind of what follows.
const (
	lastOfMessage = iota
	partOfMessage
	manyMessages // each after its length
	lastOfPack
	partOfPack
)

// stream is one end of an Attend call.
type stream interface {
	Send(*pb.Frame) error
	Receive() (*pb.Frame, error)
}

// Session is an authenticated stream: its other side has proved that it has the secret. Send
// queues; one goroutine writes (pump), one reads (receive).
//
// The handshake: both sides draw a nonce. The node proves itself first, so an unauthenticated
// client of node 0 learns nothing, not even a value on which to test guesses of the secret. Each
// proof covers both nonces, the node's number and the direction, so it cannot be replayed,
// reflected, or used as another node's. The keys of both directions are derived from the secret and
// the nonces in the same way. Over TLS a proof also covers the channel binding of the TLS session,
// so that no third party can relay the handshake, whatever the certificates are worth. Without TLS
// there is no forward secrecy.
//
// Rejected alternatives: TLS with certificates as the only way, which no launcher distributes; TLS
// with a pre-shared key, which crypto/tls does not have; certificates whose key is derived from the
// secret, on which any client could test guesses of it.
type Session struct {
	stream stream
	node   int // of the node's side
	in     *seal
	out    *seal
	box    *outbox.Box[parcel]
	cut    func()   // ends the stream; called if the box is full
	got    unpacker // what receive returns next
}

func nodeBytes(node uint32) []byte { return binary.LittleEndian.AppendUint32(nil, node) }

var (
	// ErrSecret is the error for a proof that is not valid.
	ErrSecret = errors.New("the other side does not have the secret")
	// ErrHandshake is the error for what no node of a job sends.
	ErrHandshake = errors.New("not a valid HDMLP handshake")
)

// unauthenticated is the error for a client that claims to be this node but does not have the
// secret.
type unauthenticated uint32

func (u unauthenticated) Error() string { return ErrSecret.Error() }

func (u unauthenticated) Unwrap() error { return ErrSecret }

// versionMismatch is the error for another protocol version, which is its value.
type versionMismatch uint32

func (v versionMismatch) Error() string {
	return fmt.Sprintf("version %d of the control protocol", uint32(v))
}

// ask sends a frame and waits for the answer.
func ask(s stream, f *pb.Frame) (*pb.Frame, error) {
	// after EOF, Receive returns the reason
	if err := s.Send(f); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return s.Receive()
}

// transcript is what both sides have sent before their proofs: their nonces, and the node's number.
func transcript(secret auth.Secret, nodes, zeros []byte, node uint32,
	bound []byte,
) auth.Transcript {
	return auth.Transcript{
		Secret:  secret,
		Said:    [][]byte{nodes, zeros, nodeBytes(node)},
		Binding: bound,
	}
}

// greet is the node's side of the handshake. bound returns the channel binding; it is called when
// the connection is established.
func greet(s stream, secret auth.Secret, node int,
	bound func() ([]byte, error),
) (*Session, error) {
	mine := auth.Nonce()
	f, err := ask(s,
		&pb.Frame{Kind: &pb.Frame_Hello{Hello: &pb.Hello{Version: Version, Nonce: mine}}})
	if err != nil {
		return nil, err
	}
	challenge := f.GetChallenge()
	switch {
	case challenge == nil:
		return nil, ErrHandshake
	case challenge.GetVersion() != Version:
		return nil, versionMismatch(challenge.GetVersion())
	case len(challenge.GetNonce()) != auth.NonceSize:
		return nil, ErrHandshake
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
		return nil, ErrSecret
	}
	return newSession(s, secret, node, mine, theirs, false), nil
}

// admit is node 0's side of the handshake. proved is called when the node's proof was verified,
// before the node is sent so; an error of proved ends the handshake.
func admit(s stream, secret auth.Secret, bound []byte, proved func() error) (*Session, error) {
	f, err := s.Receive()
	if err != nil {
		return nil, err
	}
	hello := f.GetHello()
	if hello == nil || len(hello.GetNonce()) != auth.NonceSize {
		return nil, ErrHandshake
	}
	theirs, mine := hello.GetNonce(), auth.Nonce()
	if err := s.Send(&pb.Frame{
		Kind: &pb.Frame_Challenge{Challenge: &pb.Hello{Version: Version, Nonce: mine}},
	}); err != nil {
		return nil, err
	}
	if hello.GetVersion() != Version {
		return nil, versionMismatch(hello.GetVersion())
	}
	if f, err = s.Receive(); err != nil {
		return nil, err
	}
	n := f.GetProof().GetNode()
	if f.GetProof() == nil {
		return nil, ErrHandshake
	}
	both := transcript(secret, theirs, mine, n, bound)
	if !both.Proves(labelJoin, f.GetProof().GetMac()) {
		return nil, unauthenticated(n)
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

func newSession(s stream, secret auth.Secret, node int, nodes, zeros []byte,
	isZero bool,
) *Session {
	up := newSeal(secret.Derive(labelUp, nodes, zeros))
	down := newSeal(secret.Derive(labelDown, nodes, zeros))
	c := &Session{
		stream: s, node: node, in: down, out: up, box: outbox.New[parcel](maxQueued),
		cut: func() {},
	}
	if isZero {
		c.in, c.out = up, down
	}
	return c
}

// Send queues a message.
func (c *Session) Send(m *pb.Message) { c.put(parcel{message: m}) }

// SendPack queues the messages of a pack.
func (c *Session) SendPack(p *Pack) { c.put(parcel{pack: p}) }

func (c *Session) put(p parcel) {
	if !c.box.Put(p) {
		c.box.Abandon()
		go c.cut() // it may block
	}
}

// Close ends the session after all queued messages were sent.
func (c *Session) Close() { c.box.Close() }

// errSlow is why a session ends whose other side does not take what it is sent.
var errSlow = errors.New("the other node does not take the messages that it is sent")

// pump writes queued messages until Close is called, done is closed, or the stream ends.
func (c *Session) pump(done <-chan struct{}) error {
	for {
		p, ok := c.box.Take(done)
		switch {
		case c.box.Abandoned():
			return errSlow
		case !ok:
			return nil
		case p.pack != nil:
			if err := c.sendParts(p.pack.encoded(), packPart, partOfPack, lastOfPack); err != nil {
				return err
			}
			continue
		}
		plain, err := proto.Marshal(p.message)
		if err != nil {
			return err
		}
		many := c.more(plain)
		if many != nil {
			err = c.send(many)
		} else {
			err = c.sendParts(plain, maxPart, partOfMessage, lastOfMessage)
		}
		if err != nil {
			return err
		}
	}
}

// more returns the content of a frame with a message and those queued after it, as many as fit;
// nil: there are no others that fit.
func (c *Session) more(first []byte) (many []byte) {
	size := len(first)
	for {
		next, ok := c.box.TakeIf(func(p parcel) bool {
			return p.pack == nil && size+proto.Size(p.message)+2*binary.MaxVarintLen64 < maxPart
		})
		if !ok {
			return many
		}
		if many == nil {
			many = appendMessage([]byte{manyMessages}, first)
		}
		plain, err := proto.Marshal(next.message)
		if err != nil {
			panic(err) // texts come from this program, or were decoded by it: they are UTF-8
		}
		many = appendMessage(many, plain)
		size = len(many)
	}
}

// sendParts writes frames with parts of at most most bytes.
func (c *Session) sendParts(plain []byte, most int, part, last byte) error {
	for first := true; first || len(plain) > 0; first = false {
		n := min(len(plain), most)
		kind := part
		if n == len(plain) {
			kind = last
		}
		frame := append(make([]byte, 0, n+1+32), kind)
		if err := c.send(append(frame, plain[:n]...)); err != nil {
			return err
		}
		plain = plain[n:]
	}
	return nil
}

// send seals and writes a frame.
func (c *Session) send(content []byte) error {
	return c.stream.Send(&pb.Frame{Kind: &pb.Frame_Sealed{Sealed: c.out.close(content)}})
}

// receive waits for the next message.
func (c *Session) receive() (*pb.Message, error) {
	var whole []byte
	for kind := byte(lastOfMessage); ; {
		m, err := c.got.next()
		if err != nil {
			return nil, fmt.Errorf("messages of node %d: %w", c.node, err)
		}
		if m != nil {
			return m, nil
		}
		f, err := c.stream.Receive()
		if err != nil {
			return nil, err
		}
		part, err := c.in.open(f.GetSealed())
		if err != nil {
			return nil, err
		}
		if len(part) == 0 || part[0] > partOfPack {
			return nil, ErrHandshake
		}
		is := part[0]
		if whole != nil && is != kind && is != kind-1 {
			return nil, ErrHandshake // the last part is missing
		}
		kind, part = is, part[1:]
		most := maxMessage
		if kind >= lastOfPack {
			most = maxPack
		}
		if len(whole)+len(part) > most {
			return nil, &cluster.LimitError{
				What:  "message",
				Size:  int64(len(whole) + len(part)),
				Limit: int64(most),
			}
		}
		if whole = append(whole, part...); kind == partOfMessage || kind == partOfPack {
			continue
		}
		switch kind {
		case lastOfMessage:
			m := new(pb.Message)
			if err := proto.Unmarshal(whole, m); err != nil {
				return nil, fmt.Errorf("message of node %d: %w", c.node, err)
			}
			return m, nil
		case manyMessages:
			c.got.messages(whole)
		case lastOfPack:
			c.got.pack(whole)
		}
		whole = nil
	}
}

// handle handles messages until the stream ends or has one that is not valid.
func (c *Session) handle(f func(*pb.Message) error) error {
	for {
		m, err := c.receive()
		if err == nil {
			err = f(m)
		}
		if err != nil {
			return err
		}
	}
}
