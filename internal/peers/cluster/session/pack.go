package session

import (
	"bufio"
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"io"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/hdmlp/hdmlp/internal/peers/cluster"
	pb "github.com/hdmlp/hdmlp/internal/peers/cluster/clusterpb"
)

const (
	// packPart is how much of a pack is in a frame. Node 0 holds a frame per node at a time.
	packPart = 16 << 10
	maxPack  = cluster.MaxTotal + 64<<20 // a pack, compressed
	// maxUnpacked limits the messages of a pack together: parts of a gather, or the members with
	// their payloads.
	maxUnpacked = cluster.MaxTotal + cluster.MaxNodes*1024
)

// Pack is messages for many nodes. It is encoded once, when the first of them is sent it, and not
// under the hub's lock.
type Pack struct {
	Messages []*pb.Message
	once     sync.Once
	bytes    []byte
}

// NewPack returns a pack of messages, which no one changes from then on.
func NewPack(messages ...*pb.Message) *Pack { return &Pack{Messages: messages} }

// encoded returns the messages, each after its length, compressed.
func (p *Pack) encoded() []byte {
	p.once.Do(func() {
		var out bytes.Buffer
		w, _ := flate.NewWriter(&out, flate.BestSpeed) // cannot fail: the level is valid
		for _, m := range p.Messages {
			plain, err := proto.Marshal(m)
			if err != nil {
				panic(err) // texts come from this program, or were decoded by it: they are UTF-8
			}
			_, _ = w.Write(appendMessage(nil, plain)) // cannot fail: the writer is a buffer
		}
		_ = w.Close()
		p.bytes = out.Bytes()
	})
	return p.bytes
}

func appendMessage(to, plain []byte) []byte {
	return append(binary.AppendUvarint(to, uint64(len(plain))), plain...)
}

// parcel is what a session sends: a message or a pack.
type parcel struct {
	message *pb.Message
	pack    *Pack
}

// unpacker returns the messages of a pack, or of a frame with many. The zero value has none.
type unpacker struct {
	from *bufio.Reader // nil: there are no more
	left int64         // bytes that may still come
}

func (u *unpacker) messages(plain []byte) {
	u.from, u.left = bufio.NewReader(bytes.NewReader(plain)), int64(len(plain))
}

func (u *unpacker) pack(compressed []byte) {
	u.from, u.left = bufio.NewReader(flate.NewReader(bytes.NewReader(compressed))), maxUnpacked
}

// next returns the next message; nil: there are no more.
func (u *unpacker) next() (*pb.Message, error) {
	if u.from == nil {
		return nil, nil
	}
	size, err := binary.ReadUvarint(u.from)
	if errors.Is(err, io.EOF) {
		u.from = nil
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	most := min(maxMessage, u.left-1) // the length has a byte at least
	if most < 0 || size > uint64(most) {
		return nil, &cluster.LimitError{
			What:  "message",
			Size:  int64(min(size, 1<<62)),
			Limit: max(0, most),
		}
	}
	u.left -= 1 + int64(size)
	plain, m := make([]byte, size), new(pb.Message)
	if _, err := io.ReadFull(u.from, plain); err != nil {
		return nil, err
	}
	return m, proto.Unmarshal(plain, m)
}
