package daemon

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/assembly"
	"github.com/hdmlp/hdmlp/internal/budget"
	"github.com/hdmlp/hdmlp/internal/catalog"
	"github.com/hdmlp/hdmlp/internal/dataset"
	"github.com/hdmlp/hdmlp/internal/node"
	"github.com/hdmlp/hdmlp/internal/protocol"
	"github.com/hdmlp/hdmlp/internal/storageclass"
	"github.com/hdmlp/hdmlp/internal/storageclass/memory"
)

func TestMain(m *testing.M) {
	if mode := os.Getenv("HDMLP_TEST_PROCESS"); mode != "" {
		os.Exit(process(mode))
	}
	goleak.VerifyTestMain(m)
}

// fakeSource has samples of 100 bytes that consist of their own number.
type fakeSource struct {
	index  *dataset.Index
	broken error         // what every read ends with
	open   *atomic.Int64 // how many sources are
}

func (s fakeSource) Index() *dataset.Index { return s.index }

func (s fakeSource) Close() error {
	s.open.Add(-1)
	return nil
}

func (s fakeSource) Read(_ context.Context, id int, dst []byte) (dataset.Stamp, error) {
	if s.broken != nil {
		return 0, s.broken
	}
	for i := range dst {
		dst[i] = byte(id)
	}
	return 0, nil
}

func (s fakeSource) Stat(context.Context, int) (dataset.Stamp, error) { return 0, nil }

// fakeNode knows the dataset kind "fake": 20 samples, or for the path /long 10,000
// whose names are very long, and for /wide one more than a call lists. /slow takes until the opener goes away, and
// of /broken no sample can be read. sources counts those that are open.
func fakeNode(sources *atomic.Int64) *node.Node {
	open := func(ctx context.Context, path string, _ dataset.OpenOptions) (dataset.Indexed, error) {
		n, name, broken := 20, "%04d.x", error(nil)
		switch path {
		case "/long":
			n, name = 10_000, strings.Repeat("n", 2000)+"%04d.x"
		case "/wide":
			n = maxSamples + 1
		case "/broken":
			broken = errors.New("the disk is on fire")
		case "/slow":
			<-ctx.Done()
			return nil, ctx.Err()
		}
		b := dataset.NewBuilder([]string{"a"}, []string{".x"})
		b.Directory(dataset.Directory{Class: -1})
		b.Directory(dataset.Directory{Path: "a", Class: 0})
		for i := range n {
			b.Sample(fmt.Sprintf(name, i), 100, 0, 0)
		}
		index, err := b.Build()
		sources.Add(1)
		return fakeSource{index, broken, sources}, err
	}
	ram := memory.New(memory.Options{})
	return node.New(node.Options{Node: assembly.Node{Budget: new(budget.Budget)}, Kinds: catalog.Kinds{
		Sources: []dataset.Kind{{Name: "fake", Open: open}},
		Classes: []storageclass.Kind{memory.Kind(ram)},
	}}, slog.New(slog.DiscardHandler))
}

// running is a daemon under test.
type running struct {
	t       *testing.T
	d       *Daemon
	address *net.UnixAddr
	ended   chan error
	stop    context.CancelFunc
	sources atomic.Int64 // that are open
}

var addresses atomic.Int64

// start starts a daemon that ends with its last connection.
func start(t *testing.T, change ...func(*Daemon)) *running {
	t.Helper()
	address := &net.UnixAddr{Name: fmt.Sprintf("@hdmlp-test-%d-%d", os.Getpid(), addresses.Add(1)), Net: "unix"}
	l, err := net.ListenUnix("unix", address)
	if err != nil {
		t.Fatal(err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	r := &running{t: t, address: address, ended: make(chan error, 1)}
	d := New(Config{Version: "test", Node: fakeNode(&r.sources), Log: slog.New(slog.DiscardHandler), LogFile: null})
	for _, c := range change {
		c(d)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.d, r.stop = d, cancel
	go func() { r.ended <- d.Run(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		null.Close()
	})
	return r
}

// end waits until the daemon has ended by itself. Then no dataset is open.
func (r *running) end() {
	r.t.Helper()
	patience := time.NewTimer(time.Minute)
	defer patience.Stop()
	select {
	case err := <-r.ended:
		if err != nil {
			r.t.Errorf("the daemon ended with %v", err)
		}
	case <-patience.C:
		r.t.Error("the daemon did not end")
		r.stop()
		<-r.ended
	}
	if n := r.sources.Load(); n != 0 {
		r.t.Errorf("%d datasets are still open", n)
	}
}

// client is a training process, frame by frame.
type client struct {
	t    *testing.T
	c    *net.UnixConn
	buf  []byte
	fds  []int
	next uint64
	maps map[uint32][]byte
	held []frame // what came before a reply, and is no reply
}

// frame is one that came; fd is -1 where it carries none.
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

// hello dials and greets.
func (r *running) hello() *client {
	r.t.Helper()
	x := r.dial()
	x.json(protocol.Hello, protocol.HelloMessage{Protocol: protocol.Version, Version: "test", PID: os.Getpid()})
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
		x.t.Logf("send: %v", err) // the daemon may have ended the connection: what it said tells why
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

// receive reads the next frame; io.EOF: the daemon has ended the connection.
func (x *client) receive() (frame, error) {
	_ = x.c.SetReadDeadline(time.Now().Add(time.Minute)) // what takes longer hangs
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

// expect reads frames up to the first of a type; segments are mapped on the way,
// batches and ends kept for later.
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
	number, flags := binary.LittleEndian.Uint32(f.payload), binary.LittleEndian.Uint32(f.payload[4:])
	size := int(binary.LittleEndian.Uint64(f.payload[8:]))
	if flags&protocol.SegmentWritable == 0 {
		if m, err := unix.Mmap(f.fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
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

// refused reads up to an ERROR and then the end of the connection.
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
		Dataset:  protocol.DatasetMessage{Kind: "fake", Path: "/data"},
		Stream:   protocol.StreamMessage{Seed: &seed, Epochs: 2, GlobalBatch: 5, Shuffle: "torch", Scheme: "strided", Tail: "pad"},
		Settings: protocol.Settings{Arguments: map[string]any{"memory": "1000B"}},
	}
	for _, c := range change {
		c(&m)
	}
	return m
}

// call calls, and gives the result or the error.
func (x *client) call(method string, params string) (json.RawMessage, *protocol.ErrorMessage) {
	x.t.Helper()
	x.next++
	x.json(protocol.Call, protocol.CallMessage{ID: x.next, Method: method, Params: json.RawMessage(params)})
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
	return protocol.AppendFrame(nil, protocol.Wait, binary.LittleEndian.AppendUint64(nil, generation))
}

// batch is a decoded BATCH.
type batch struct {
	generation  uint64
	epoch, step uint32
	audit       uint64
	labels      []uint64
	ids, slots  []uint32
}

// batch reads the next one and looks at its samples' bytes.
func (x *client) batch() batch {
	x.t.Helper()
	p := x.expect(protocol.Batch).payload
	le := binary.LittleEndian
	b := batch{generation: le.Uint64(p), epoch: le.Uint32(p[8:]), step: le.Uint32(p[12:]), audit: le.Uint64(p[24:])}
	n, m := int(le.Uint32(p[16:])), int(le.Uint32(p[20:]))
	p = p[32:]
	if len(p) != 32*n+4*m {
		x.t.Fatalf("a batch of %d samples and %d slots has %d bytes", n, m, len(p))
	}
	for i := range n {
		off, length := le.Uint64(p[8*n+8*i:]), le.Uint64(p[16*n+8*i:])
		id, segment := le.Uint32(p[24*n+4*i:]), le.Uint32(p[28*n+4*i:])
		b.ids = append(b.ids, id)
		b.labels = append(b.labels, le.Uint64(p[8*i:]))
		data := x.maps[segment]
		if data == nil || length != 100 {
			x.t.Fatalf("sample %d of %d bytes lies in segment %d", id, length, segment)
		}
		for _, v := range data[off : off+length] {
			if v != byte(id) {
				x.t.Fatalf("sample %d has other bytes", id)
			}
		}
	}
	for i := range m {
		b.slots = append(b.slots, le.Uint32(p[32*n+4*i:]))
	}
	return b
}
