package session

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"testing"

	pb "github.com/hdmlp/hdmlp/internal/peers/cluster/clusterpb"
)

// pipe is a stream without a network; change, if not nil, may modify frames on their way.
type pipe struct {
	in, out chan *pb.Frame
	change  func(*pb.Frame)
}

func pipes() (node, zero *pipe) {
	a, b := make(chan *pb.Frame, 1000), make(chan *pb.Frame, 1000)
	return &pipe{in: a, out: b}, &pipe{in: b, out: a}
}

func (p *pipe) Send(f *pb.Frame) error {
	if p.change != nil {
		p.change(f)
	}
	p.out <- f
	return nil
}

func (p *pipe) Receive() (*pb.Frame, error) {
	if f, ok := <-p.in; ok {
		return f, nil
	}
	return nil, io.EOF
}

func noBinding() ([]byte, error) { return nil, nil }

// shake performs a handshake between two sides.
func shake(node, zero *pipe, nodes, zeros []byte) (n, z *Session, nodeErr, zeroErr error) {
	var both sync.WaitGroup
	both.Go(func() {
		n, nodeErr = greet(node, nodes, 3, noBinding)
		close(node.out)
	})
	both.Go(func() {
		z, zeroErr = admit(zero, zeros, nil, func() error { return nil })
		close(zero.out)
	})
	both.Wait()
	return
}

func TestHandshakeAcceptsOnlyValidProofs(t *testing.T) {
	node, zero := pipes()
	_, z, nodeErr, zeroErr := shake(node, zero, secret, secret)
	if nodeErr != nil || zeroErr != nil || z.node != 3 {
		t.Fatal(nodeErr, zeroErr)
	}
	node, zero = pipes()
	_, _, nodeErr, zeroErr = shake(node, zero, secret, []byte("another one, as long as that"))
	if !errors.Is(zeroErr, ErrSecret) || nodeErr == nil {
		t.Error("another secret:", nodeErr, zeroErr)
	}
	for name, change := range map[string]func(*pb.Frame){
		"node":  func(f *pb.Frame) { f.GetProof().Node++ },
		"mac":   func(f *pb.Frame) { f.GetProof().Mac[0]++ },
		"empty": func(f *pb.Frame) { f.GetProof().Mac = nil },
	} {
		for side := range 2 {
			node, zero = pipes()
			[]*pipe{node, zero}[side].change = func(f *pb.Frame) {
				if f.GetProof() != nil && (side == 0 || name != "node") {
					change(f)
				}
			}
			_, _, nodeErr, zeroErr = shake(node, zero, secret, secret)
			if err := []error{zeroErr, nodeErr}[side]; !errors.Is(err, ErrSecret) &&
				(side == 0 || name != "node") {
				t.Errorf("%s changed by %d: %v", name, side, err)
			}
		}
	}
	node, zero = pipes()
	node.change = func(f *pb.Frame) {
		if h := f.GetHello(); h != nil {
			h.Version = 7
		}
	}
	_, _, _, zeroErr = shake(node, zero, secret, secret)
	if version := versionMismatch(0); !errors.As(zeroErr, &version) || version != 7 {
		t.Error("version:", zeroErr)
	}
	node, zero = pipes() // a node that is sent its own frames
	if _, err := greet(&pipe{in: reflected(node), out: node.out}, secret, 3,
		noBinding); err == nil {
		t.Error("a reflection was accepted as node 0")
	}
	_ = zero
}

// TestNoncesHaveTheirLength checks that neither side takes part in a handshake with a nonce that is
// shorter or longer than it should be: one that is guessed makes a proof that can be replayed.
func TestNoncesHaveTheirLength(t *testing.T) {
	for what, change := range map[string]func([]byte) []byte{
		"none":   func([]byte) []byte { return nil },
		"short":  func(b []byte) []byte { return b[1:] },
		"longer": func(b []byte) []byte { return append(b, 0) },
	} {
		for side := range 2 {
			node, zero := pipes()
			[]*pipe{node, zero}[side].change = func(f *pb.Frame) {
				if h := f.GetHello(); h != nil {
					h.Nonce = change(h.Nonce)
				}
				if h := f.GetChallenge(); h != nil {
					h.Nonce = change(h.Nonce)
				}
			}
			_, _, nodeErr, zeroErr := shake(node, zero, secret, secret)
			if err := []error{zeroErr, nodeErr}[side]; !errors.Is(err, ErrHandshake) {
				t.Errorf("%s, sent by %d: %v", what, side, err)
			}
		}
	}
}

// TestSessionsHaveKeysOfTheirOwn checks that what was sent in one session cannot be sent again in
// another one, nor back.
func TestSessionsHaveKeysOfTheirOwn(t *testing.T) {
	var n, z [2]*Session
	for i := range n {
		node, zero := pipes()
		var nodeErr, zeroErr error
		if n[i], z[i], nodeErr, zeroErr = shake(node, zero, secret, secret); nodeErr != nil ||
			zeroErr != nil {
			t.Fatal(nodeErr, zeroErr)
		}
	}
	up, down := n[0].out.close([]byte("up")), z[0].out.close([]byte("down"))
	for what, err := range map[string]error{
		"up, in another session":   second(z[1].in.open(bytes.Clone(up))),
		"down, in another session": second(n[1].in.open(bytes.Clone(down))),
		"up, sent back":            second(n[0].in.open(bytes.Clone(up))),
	} {
		if err == nil {
			t.Errorf("%s: it is accepted", what)
		}
	}
	if got, err := z[0].in.open(up); err != nil || string(got) != "up" {
		t.Errorf("up: %q, %v", got, err)
	}
}

func second(_ []byte, err error) error { return err }

// TestOnlyAProvedNodeIsAdmitted: proved is called once for a node with a valid proof, and for no
// other.
func TestOnlyAProvedNodeIsAdmitted(t *testing.T) {
	for name, c := range map[string]struct {
		secret   []byte
		change   func(*pb.Proof)
		admitted int
	}{
		"a valid proof":           {secret, func(*pb.Proof) {}, 1},
		"another secret":          {[]byte("another one, as long as that"), func(*pb.Proof) {}, 0},
		"a proof of another node": {secret, func(p *pb.Proof) { p.Node = 2 }, 0},
		"no proof":                {secret, func(p *pb.Proof) { p.Mac = nil }, 0},
	} {
		node, zero := pipes()
		node.change = func(f *pb.Frame) {
			if f.GetProof() != nil {
				c.change(f.GetProof())
			}
		}
		admitted := 0
		var both sync.WaitGroup
		both.Go(func() {
			_, _ = greet(node, c.secret, 3, noBinding)
			close(node.out)
		})
		both.Go(func() {
			_, _ = admit(zero, secret, nil, func() error { admitted++; return nil })
			close(zero.out)
		})
		both.Wait()
		if admitted != c.admitted {
			t.Errorf("%s: admitted %d times", name, admitted)
		}
	}
}

// reflected sends a node's own frames back to it.
func reflected(p *pipe) chan *pb.Frame {
	back := make(chan *pb.Frame, 10)
	go func() {
		f := <-p.out
		back <- &pb.Frame{Kind: &pb.Frame_Challenge{Challenge: f.GetHello()}}
		back <- <-p.out
	}()
	return back
}

// TestModifiedFramesDoNotOpen: long messages arrive; frames that were modified, dropped, reordered
// or repeated are refused.
func TestModifiedFramesDoNotOpen(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789"), 30000)
	send := func(change func([]*pb.Frame) []*pb.Frame) (int, error) {
		up, down := pipes()
		n, z := newSession(up, secret, 1, []byte("n"), []byte("z"), false),
			newSession(down, secret, 1, []byte("n"), []byte("z"), true)
		for range 3 {
			n.Send(&pb.Message{
				Kind: &pb.Message_Contribution{Contribution: &pb.Contribution{Data: data}},
			})
		}
		n.Close()
		if err := n.pump(nil); err != nil {
			t.Fatal(err)
		}
		close(up.out)
		var frames []*pb.Frame
		for f := range up.out {
			frames = append(frames, f)
		}
		frames = change(frames)
		z.stream = &pipe{in: make(chan *pb.Frame, len(frames))}
		for _, f := range frames {
			z.stream.(*pipe).in <- f
		}
		close(z.stream.(*pipe).in)
		for got := 0; ; got++ {
			m, err := z.receive()
			if err != nil {
				return got, err
			}
			if !bytes.Equal(m.GetContribution().GetData(), data) {
				t.Error("other bytes")
			}
		}
	}
	if n, err := send(func(f []*pb.Frame) []*pb.Frame { return f }); n != 3 ||
		!errors.Is(err, io.EOF) {
		t.Error(n, err)
	}
	for name, change := range map[string]func([]*pb.Frame) []*pb.Frame{
		"changed":  func(f []*pb.Frame) []*pb.Frame { f[1].GetSealed()[100]++; return f },
		"left out": func(f []*pb.Frame) []*pb.Frame { return f[1:] },
		"moved":    func(f []*pb.Frame) []*pb.Frame { f[0], f[1] = f[1], f[0]; return f },
		"repeated": func(f []*pb.Frame) []*pb.Frame { return append(f[:1], f...) },
		"nothing":  func(f []*pb.Frame) []*pb.Frame { f[0] = &pb.Frame{}; return f },
	} {
		if n, err := send(change); n != 0 || !errors.Is(err, errSeal) {
			t.Errorf("%s: %d messages, %v", name, n, err)
		}
	}
}
