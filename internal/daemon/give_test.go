package daemon

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/daemon/protocol"
)

// memfd returns a file with a list, as a process passes it. The caller must close it.
func memfd(t *testing.T, list ...int32) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("list", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "list")
	var b []byte
	for _, v := range list {
		b = binary.LittleEndian.AppendUint32(b, uint32(v))
	}
	if _, err := f.Write(b); err != nil {
		t.Fatal(err)
	}
	return f
}

// sendList sends a frame with a list.
func (x *client) sendList(kind protocol.Type, v any, list ...int32) {
	x.t.Helper()
	frame, err := protocol.AppendJSON(nil, kind, v)
	if err != nil {
		x.t.Fatal(err)
	}
	f := memfd(x.t, list...)
	defer f.Close()
	if _, _, err := x.c.WriteMsgUnix(frame, unix.UnixRights(int(f.Fd())), nil); err != nil {
		x.t.Fatal(err)
	}
}

// openGiven opens a job whose epochs have batches of 3 and 4 samples.
func (x *client) openGiven(epochs int, first ...int32) protocol.OpenedMessage {
	x.t.Helper()
	x.sendList(protocol.Open, openMessage(func(m *protocol.OpenMessage) {
		m.Stream.Epochs, m.Stream.Shuffle = epochs, "given"
		m.Stream.Given = &protocol.GivenMessage{Batches: 2, Entries: 7, Epochs: 1}
	}), append([]int32{3, 4}, first...)...)
	var m protocol.OpenedMessage
	if err := json.Unmarshal(x.expect(protocol.Opened).payload, &m); err != nil {
		x.t.Fatal(err)
	}
	return m
}

// epoch receives an epoch's two batches, and returns their samples.
func (x *client) epoch(generation uint64, epoch uint32) (ids []uint32) {
	x.t.Helper()
	var audit uint64
	for step := range uint32(2) {
		b := x.batch()
		if b.generation != generation || b.epoch != epoch || b.step != step {
			x.t.Fatalf("batch %d of epoch %d in generation %d", b.step, b.epoch, b.generation)
		}
		audit += b.audit
		ids = append(ids, b.ids...)
		x.send(ack(generation, epoch, step, audit, b.slots...))
	}
	return ids
}

// TestGivenEpochsAreDeliveredInOrder checks also that the generation ends after the last known
// epoch.
func TestGivenEpochsAreDeliveredInOrder(t *testing.T) {
	r := start(t)
	x := r.hello()
	if o := x.openGiven(3, 9, 9, 9, 1, 2, 3, 4); o.Positions != 7 || o.Steps != 2 ||
		o.RankSamples != 7 {
		t.Errorf("opened %+v", o)
	}
	x.send(iterate(1, 0, 0))
	if ids := x.epoch(1, 0); !slices.Equal(ids, []uint32{9, 9, 9, 1, 2, 3, 4}) {
		t.Errorf("samples %v", ids)
	}
	if end := x.expect(protocol.End); binary.LittleEndian.Uint64(end.payload) != 1 {
		t.Errorf("END % x", end.payload)
	}
	x.sendList(protocol.Give, protocol.GiveMessage{Epoch: 1, Entries: 7}, 0, 1, 2, 3, 4, 5, 6)
	x.sendList(protocol.Give, protocol.GiveMessage{Epoch: 2, Entries: 7}, 19, 18, 17, 16, 15, 14,
		13)
	x.send(iterate(2, 1, 0))
	if ids := x.epoch(2, 1); !slices.Equal(ids, []uint32{0, 1, 2, 3, 4, 5, 6}) {
		t.Errorf("samples %v", ids)
	}
	if result, e := x.call("audit", `{"epoch":1}`); e != nil ||
		!strings.Contains(string(result), `"complete":true`) {
		t.Errorf("audit: %s %v", result, e)
	}
	if ids := x.epoch(2, 2); !slices.Equal(ids, []uint32{19, 18, 17, 16, 15, 14, 13}) {
		t.Errorf("samples %v", ids)
	}
	x.expect(protocol.End)
	x.close()
	r.end()
}

// TestWrongOrderEndsTheGeneration checks that its ERROR names no generation, and that the
// connection can be used after it.
func TestWrongOrderEndsTheGeneration(t *testing.T) {
	r := start(t)
	x := r.hello()
	x.openGiven(0, 9, 9, 9, 1, 2, 3, 4)
	x.sendList(protocol.Give, protocol.GiveMessage{Epoch: 1, Entries: 7}, 0, 1, 2, 3, 20, 5, 6)
	if m := x.refused(); m.Kind != protocol.KindConfig || m.Generation != 0 ||
		m.Message != "access: epoch 1 is given with sample 20 at index 4; allowed: 0 to 19" {
		t.Errorf("%+v", m)
	}
	x.send(iterate(3, 1, 0))
	if m := x.refused(); m.Kind != protocol.KindConfig || m.Generation != 3 ||
		!strings.Contains(m.Message, "epoch 1 was not given") {
		t.Errorf("%+v", m)
	}
	x.sendList(protocol.Give, protocol.GiveMessage{Epoch: 1, Entries: 7}, 0, 1, 2, 3, 4, 5, 6)
	x.send(iterate(4, 1, 0))
	if ids := x.epoch(4, 1); len(ids) != 7 {
		t.Errorf("samples %v", ids)
	}
	x.expect(protocol.End)
	y := r.hello()
	x.json(protocol.Give, protocol.GiveMessage{Epoch: 2, Entries: 7})
	if m := x.refused(); m.Kind != protocol.KindProtocol ||
		!strings.Contains(m.Message, "came without its file descriptor") {
		t.Errorf("%+v", m)
	}
	x.close()

	y.sendList(protocol.Give, protocol.GiveMessage{Epoch: 2, Entries: 7}, 1)
	if m := y.refused(); m.Kind != protocol.KindProtocol ||
		!strings.Contains(m.Message, "GIVE before a job is open") {
		t.Errorf("%+v", m)
	}
	y.close()
	r.end()
}

func TestJobOverASubset(t *testing.T) {
	r := start(t)
	x := r.hello()
	x.sendList(protocol.Open, openMessage(func(m *protocol.OpenMessage) {
		m.Stream.Shuffle, m.Stream.Subset = "none", &protocol.SubsetMessage{Count: 7}
	}), 3, 1, 4, 1, 5, 9, 2)
	var m protocol.OpenedMessage
	if err := json.Unmarshal(x.expect(protocol.Opened).payload, &m); err != nil ||
		m.Positions != 7 || m.Samples != 20 || m.Steps != 2 {
		t.Errorf("%+v, %v", m, err)
	}
	x.send(iterate(1, 0, 0))
	if b := x.batch(); !slices.Equal(b.ids, []uint32{3, 1, 4, 1, 5}) {
		t.Errorf("samples %v", b.ids)
	}
	y := r.hello()
	x.close()
	y.json(protocol.Open, openMessage(func(m *protocol.OpenMessage) {
		m.Stream.Subset = &protocol.SubsetMessage{Count: 7}
	}))
	if m := y.refused(); m.Kind != protocol.KindProtocol ||
		!strings.Contains(m.Message, "came without its file descriptor") {
		t.Errorf("%+v", m)
	}
	y.close()
	r.end()
}
