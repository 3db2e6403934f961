package daemon

import (
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/daemon/protocol"
)

// client acts as a training process, frame by frame.
type client struct {
	t    *testing.T
	c    *net.UnixConn
	buf  []byte
	fds  []int
	next uint64
	maps map[uint32][]byte
	held []frame // batches and ends that arrived while another frame was expected
}

// frame is a received frame; fd is -1 if it carries none.
type frame struct {
	kind    protocol.Type
	payload []byte
	fd      int
}

func (r *running) dial() *client {
	r.t.Helper()
	c, err := net.DialUnix("unix", nil, r.address)
	if err != nil {
		r.t.Fatal(err)
	}
	x := &client{t: r.t, c: c, maps: map[uint32][]byte{}}
	r.t.Cleanup(x.close)
	return x
}

// hello dials and sends HELLO.
func (r *running) hello() *client {
	r.t.Helper()
	x := r.dial()
	x.json(protocol.Hello,
		protocol.HelloMessage{Protocol: protocol.Version, Version: "test", PID: os.Getpid()})
	f := x.expect(protocol.Welcome)
	unix.Close(f.fd)
	return x
}

func (x *client) close() {
	x.c.Close()
	for _, m := range x.maps {
		_ = unix.Munmap(m)
	}
	clear(x.maps)
	for _, fd := range x.fds {
		unix.Close(fd)
	}
	x.fds = nil
}

func (x *client) send(b []byte) {
	x.t.Helper()
	if _, err := x.c.Write(b); err != nil {
		// The daemon may have closed the connection: the error that it sent has the reason.
		x.t.Logf("send: %v", err)
	}
}

func (x *client) json(t protocol.Type, v any) {
	x.t.Helper()
	b, err := protocol.AppendJSON(nil, t, v)
	if err != nil {
		x.t.Fatal(err)
	}
	x.send(b)
}

// receive reads the next frame. It returns io.EOF if the daemon has closed the connection.
func (x *client) receive() (frame, error) {
	_ = x.c.SetReadDeadline(time.Now().Add(time.Minute)) // longer means that it hangs
	for {
		if len(x.buf) >= 8 {
			if n := 8 + int(binary.LittleEndian.Uint32(x.buf)); len(x.buf) >= n {
				f := frame{protocol.Type(x.buf[4]), x.buf[8:n:n], -1}
				x.buf = x.buf[n:]
				if f.kind == protocol.Welcome || f.kind == protocol.Segment {
					f.fd, x.fds = x.fds[0], x.fds[1:]
				}
				return f, nil
			}
		}
		data, oob := make([]byte, 1<<16), make([]byte, 256)
		n, k, _, _, err := x.c.ReadMsgUnix(data, oob)
		if err != nil {
			return frame{}, err
		}
		if n == 0 {
			return frame{}, io.EOF
		}
		x.buf = append(x.buf, data[:n]...)
		messages, err := unix.ParseSocketControlMessage(oob[:k])
		if err != nil {
			return frame{}, err
		}
		for _, m := range messages {
			fds, err := unix.ParseUnixRights(&m)
			if err != nil {
				return frame{}, err
			}
			x.fds = append(x.fds, fds...)
		}
	}
}

// expect reads frames up to the first of a type. It maps segments on the way, and keeps batches and
// ends for later.
func (x *client) expect(kind protocol.Type) frame {
	x.t.Helper()
	if i := slices.IndexFunc(x.held, func(f frame) bool { return f.kind == kind }); i >= 0 {
		f := x.held[i]
		x.held = slices.Delete(x.held, i, i+1)
		return f
	}
	for {
		f, err := x.receive()
		if err != nil {
			x.t.Fatalf("waiting for a frame of type %d: %v", kind, err)
		}
		if f.kind == protocol.Segment {
			x.mapSegment(f)
		}
		if f.kind == kind {
			return f
		}
		if f.kind == protocol.Batch || f.kind == protocol.End {
			x.held = append(x.held, f)
		}
		if f.kind == protocol.Error {
			x.t.Fatalf("waiting for a frame of type %d: ERROR %s", kind, f.payload)
		}
	}
}

func (x *client) mapSegment(f frame) {
	x.t.Helper()
	defer unix.Close(f.fd)
	number, flags := binary.LittleEndian.Uint32(f.payload),
		binary.LittleEndian.Uint32(f.payload[4:])
	size := int(binary.LittleEndian.Uint64(f.payload[8:]))
	if flags&protocol.SegmentWritable == 0 {
		if m, err := unix.Mmap(f.fd, 0, size, unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_SHARED); err == nil {
			_ = unix.Munmap(m)
			x.t.Errorf("segment %d of a storage class can be mapped for writing", number)
		}
	}
	m, err := unix.Mmap(f.fd, 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		x.t.Fatalf("map segment %d: %v", number, err)
	}
	x.maps[number] = m
}

// refused reads frames up to an ERROR, and returns it.
func (x *client) refused() protocol.ErrorMessage {
	x.t.Helper()
	var m protocol.ErrorMessage
	for {
		f, err := x.receive()
		if err != nil {
			x.t.Fatalf("the connection ended (%v) without an ERROR", err)
		}
		if f.kind != protocol.Error {
			continue
		}
		if err := json.Unmarshal(f.payload, &m); err != nil {
			x.t.Fatal(err)
		}
		return m
	}
}

// open opens a job of one rank or more.
func (x *client) open(change ...func(*protocol.OpenMessage)) protocol.OpenedMessage {
	x.t.Helper()
	x.json(protocol.Open, openMessage(change...))
	var m protocol.OpenedMessage
	if err := json.Unmarshal(x.expect(protocol.Opened).payload, &m); err != nil {
		x.t.Fatal(err)
	}
	return m
}

func openMessage(change ...func(*protocol.OpenMessage)) protocol.OpenMessage {
	seed := uint64(7)
	m := protocol.OpenMessage{
		Job: "j", WorldSize: 1,
		Dataset: protocol.DatasetMessage{Kind: "fake", Path: "/data"},
		Stream: protocol.StreamMessage{
			Seed:        &seed,
			Epochs:      2,
			GlobalBatch: 5,
			Shuffle:     "torch",
			Scheme:      "strided",
			Tail:        "pad",
		},
		Settings: protocol.Settings{Arguments: map[string]any{"memory": "1000B"}},
	}
	for _, c := range change {
		c(&m)
	}
	return m
}

// call makes a call, and returns its result or error.
func (x *client) call(method string, params string) (json.RawMessage, *protocol.ErrorMessage) {
	x.t.Helper()
	x.next++
	x.json(protocol.Call,
		protocol.CallMessage{ID: x.next, Method: method, Params: json.RawMessage(params)})
	var reply struct {
		ID     uint64
		Result json.RawMessage
		Error  *protocol.ErrorMessage
	}
	if err := json.Unmarshal(x.expect(protocol.Reply).payload, &reply); err != nil {
		x.t.Fatal(err)
	}
	if reply.ID != x.next {
		x.t.Fatalf("reply to call %d, want %d", reply.ID, x.next)
	}
	return reply.Result, reply.Error
}

func iterate(generation uint64, epoch, step uint32) []byte {
	b := binary.LittleEndian.AppendUint64(nil, generation)
	b = binary.LittleEndian.AppendUint32(b, epoch)
	return protocol.AppendFrame(nil, protocol.Iterate, binary.LittleEndian.AppendUint32(b, step))
}

func ack(generation uint64, epoch, step uint32, audit uint64, slots ...uint32) []byte {
	b := binary.LittleEndian.AppendUint64(nil, generation)
	b = binary.LittleEndian.AppendUint32(b, epoch)
	b = binary.LittleEndian.AppendUint32(b, step)
	b = binary.LittleEndian.AppendUint64(b, 1000)
	b = binary.LittleEndian.AppendUint64(b, 0)
	b = binary.LittleEndian.AppendUint64(b, audit)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(slots)))
	for _, s := range slots {
		b = binary.LittleEndian.AppendUint32(b, s)
	}
	return protocol.AppendFrame(nil, protocol.Ack, b)
}

func wait(generation uint64) []byte {
	return protocol.AppendFrame(nil, protocol.Wait,
		binary.LittleEndian.AppendUint64(nil, generation))
}

// batch is a decoded BATCH.
type batch struct {
	generation  uint64
	epoch, step uint32
	audit       uint64
	labels      []uint64
	ids, slots  []uint32
}

// batch reads the next batch and checks its samples' bytes.
func (x *client) batch() batch {
	x.t.Helper()
	p := x.expect(protocol.Batch).payload
	le := binary.LittleEndian
	b := batch{
		generation: le.Uint64(p),
		epoch:      le.Uint32(p[8:]),
		step:       le.Uint32(p[12:]),
		audit:      le.Uint64(p[24:]),
	}
	n, m := int(le.Uint32(p[16:])), int(le.Uint32(p[20:]))
	p = p[32:]
	if len(p) != 36*n+4*m {
		x.t.Fatalf("a batch of %d samples and %d slots has %d bytes", n, m, len(p))
	}
	for i := range n {
		off, length := le.Uint64(p[8*n+8*i:]), le.Uint64(p[16*n+8*i:])
		id, segment := le.Uint32(p[24*n+4*i:]), le.Uint32(p[32*n+4*i:])
		b.ids = append(b.ids, id)
		b.labels = append(b.labels, le.Uint64(p[8*i:]))
		data := x.maps[segment]
		if data == nil || length != 100 {
			x.t.Fatalf("sample %d of %d bytes lies in segment %d", id, length, segment)
		}
		for _, v := range data[off : off+length] {
			if v != byte(id) {
				x.t.Fatalf("sample %d has wrong bytes", id)
			}
		}
	}
	for i := range m {
		b.slots = append(b.slots, le.Uint32(p[36*n+4*i:]))
	}
	return b
}
