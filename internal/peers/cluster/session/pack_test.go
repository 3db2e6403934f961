package session

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/hdmlp/hdmlp/internal/peers/cluster"
	pb "github.com/hdmlp/hdmlp/internal/peers/cluster/clusterpb"
)

// sessions returns both sides of a session, without a network.
func sessions() (up, down *pipe, node, zero *Session) {
	up, down = pipes()
	return up, down, newSession(up, secret, 1, []byte("n"), []byte("z"), false),
		newSession(down, secret, 1, []byte("n"), []byte("z"), true)
}

func partOf(round uint64, data []byte) *pb.Message {
	return &pb.Message{Kind: &pb.Message_Part{Part: &pb.Part{Round: round, Data: data}}}
}

// TestMessagesArriveInOrder: short ones, long ones and packs, of which short ones share frames, and
// long ones and packs take several.
func TestMessagesArriveInOrder(t *testing.T) {
	_, down, node, zero := sessions()
	random := make([]byte, 3*packPart)
	for i := range random {
		random[i] = byte(i * i >> 3)
	}
	var want []*pb.Message
	long := partOf(1, bytes.Repeat(random, 20))
	for i, m := range []any{
		partOf(0, nil), partOf(0, []byte{}), NewPack(), long, long,
		NewPack(partOf(2, random), partOf(3, nil), long), partOf(4, []byte("x")),
		NewPack(partOf(5, nil)),
	} {
		if p, ok := m.(*Pack); ok {
			zero.SendPack(p)
			want = append(want, p.Messages...)
			continue
		}
		for range 100 {
			zero.Send(m.(*pb.Message))
			want = append(want, m.(*pb.Message))
			if i > 1 {
				break
			}
		}
	}
	zero.Close()
	go func() {
		if err := zero.pump(nil); err != nil {
			t.Error(err)
		}
		close(down.out)
	}()
	for i, w := range want {
		if m, err := node.receive(); err != nil || !proto.Equal(m, w) {
			t.Fatalf("message %d of %d is another one; %v", i, len(want), err)
		}
	}
	if m, err := node.receive(); !errors.Is(err, io.EOF) {
		t.Errorf("one more: %v, %v", m, err)
	}
}

// TestShortMessagesShareFrames: those that wait together.
func TestShortMessagesShareFrames(t *testing.T) {
	_, down, _, zero := sessions()
	for range 1000 {
		zero.Send(readyMessage)
	}
	zero.Close()
	if err := zero.pump(nil); err != nil || len(down.out) != 1 {
		t.Errorf("1000 messages in %d frames; %v", len(down.out), err)
	}
}

// TestNodeThatTakesNothingIsDisconnected: when as many messages wait as may; those are dropped.
func TestNodeThatTakesNothingIsDisconnected(t *testing.T) {
	_, down, _, zero := sessions()
	cut := make(chan struct{})
	zero.cut = func() { close(cut) }
	for range maxQueued {
		zero.Send(readyMessage)
	}
	select {
	case <-cut:
		t.Error("it is disconnected too early")
	default:
	}
	zero.SendPack(NewPack(readyMessage))
	<-cut
	zero.Send(readyMessage)
	if err := zero.pump(nil); !errors.Is(err, errSlow) || len(down.out) > 0 {
		t.Errorf("%d frames are sent, %v", len(down.out), err)
	}
}

// deflated returns what a pack with this content is on the wire.
func deflated(content []byte) []byte {
	var b bytes.Buffer
	w, _ := flate.NewWriter(&b, flate.BestCompression)
	_, _ = w.Write(content)
	_ = w.Close()
	return b.Bytes()
}

// TestInvalidPacksAreRefused: also those that would take more memory than the limits.
func TestInvalidPacksAreRefused(t *testing.T) {
	good := deflated(appendMessage(nil, []byte{}))
	for what, c := range map[string]struct {
		frames [][]byte
		want   error
	}{
		"an unknown kind":       {[][]byte{{partOfPack + 1, 1}}, ErrHandshake},
		"an empty frame":        {[][]byte{{}}, ErrHandshake},
		"part of another kind":  {[][]byte{{partOfMessage, 1}, {lastOfPack, 1}}, ErrHandshake},
		"a message in a pack":   {[][]byte{{partOfPack, 1}, {manyMessages, 0}}, ErrHandshake},
		"not compressed":        {[][]byte{append([]byte{lastOfPack}, 0xff, 0xff, 0xff)}, nil},
		"cut off":               {[][]byte{append([]byte{lastOfPack}, good[:1]...)}, nil},
		"a length without end":  {[][]byte{{manyMessages, 0x80}}, nil},
		"longer than the frame": {[][]byte{{manyMessages, 200, 1, 0}}, new(cluster.LimitError)},
		"not a message":         {[][]byte{{manyMessages, 2, 0xff, 0xff}}, nil},
		"a message too long": {
			[][]byte{append([]byte{lastOfPack},
				deflated(binary.AppendUvarint(nil, maxMessage+1))...)},
			new(cluster.LimitError),
		},
	} {
		t.Run(what, func(t *testing.T) {
			_, down, node, zero := sessions()
			for _, content := range c.frames {
				_ = zero.send(content)
			}
			close(down.out)
			m, err := node.receive()
			limit := new(cluster.LimitError)
			if err == nil || errors.Is(err, io.EOF) || errors.Is(c.want, ErrHandshake) !=
				errors.Is(err, ErrHandshake) || errors.As(c.want, &limit) != errors.As(err, &limit) {
				t.Errorf("%v, %v; want %v", m, err, c.want)
			}
		})
	}
}

// TestUnpackedBytesAreLimited: a pack of little may be one of much, also of empty messages.
func TestUnpackedBytesAreLimited(t *testing.T) {
	hundred, _ := proto.Marshal(partOf(0, make([]byte, 96)))
	for _, message := range [][]byte{nil, hundred} {
		u := unpacker{}
		u.pack(deflated(bytes.Repeat(appendMessage(nil, message), 10000)))
		u.left = 5000
		taken := 0
		m, err := u.next()
		for ; err == nil && m != nil; m, err = u.next() {
			taken += 1 + len(message)
		}
		if !errors.As(err, new(*cluster.LimitError)) || taken > 5000 || taken < 4900 {
			t.Errorf("%d bytes are taken in, where 5,000 are allowed; %v", taken, err)
		}
	}
}

// FuzzUnpack: whatever is in a frame or a pack, all of it is taken in or an error says what not.
func FuzzUnpack(f *testing.F) {
	message, _ := proto.Marshal(partOf(1, []byte("x")))
	two := appendMessage(appendMessage(nil, message), message)
	f.Add(two, false)
	f.Add(deflated(two), true)
	f.Add(deflated(nil), true)
	f.Fuzz(func(t *testing.T, data []byte, packed bool) {
		u := unpacker{}
		u.messages(data)
		if packed {
			u.pack(data)
			u.left = 1 << 20
		}
		for n := 0; ; n++ {
			if m, err := u.next(); err != nil || m == nil {
				break
			}
			if n > 1<<20 {
				t.Fatal("it has more messages than bytes")
			}
		}
	})
}

// TestUnpackedMessagesAreLimited checks that no memory is taken for a message that claims to be
// longer than messages may be, or than what is left of all of them.
func TestUnpackedMessagesAreLimited(t *testing.T) {
	limited := func(u *unpacker, what string) {
		t.Helper()
		if m, err := u.next(); m != nil || !errors.As(err, new(*cluster.LimitError)) {
			t.Errorf("%s: %v, %v", what, m, err)
		}
	}
	var packed bytes.Buffer
	w, err := flate.NewWriter(&packed, flate.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.Write(binary.AppendUvarint(nil, maxMessage+1))
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	var u unpacker
	u.pack(packed.Bytes())
	limited(&u, "in a pack")
	u.messages(appendMessage(nil, []byte("longer"))[:4])
	limited(&u, "in a frame")
	u.messages(binary.AppendUvarint(nil, 1<<63))
	limited(&u, "of 8 EiB")
}
