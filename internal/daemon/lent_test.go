package daemon

import (
	"encoding/binary"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/daemon/protocol"
)

// firstClassSegment is the least number of a segment of a storage class.
const firstClassSegment = 1 << 31

// classSegments returns the segments of storage classes that a batch names.
func classSegments(f frame) (numbers []uint32) {
	n := int(binary.LittleEndian.Uint32(f.payload[16:]))
	for i := range n {
		number := binary.LittleEndian.Uint32(f.payload[32+32*n+4*i:])
		if number >= firstClassSegment && !slices.Contains(numbers, number) {
			numbers = append(numbers, number)
		}
	}
	return numbers
}

// gone is a GONE frame.
func gone(number uint32) []byte {
	return protocol.AppendFrame(nil, protocol.Gone, binary.LittleEndian.AppendUint32(nil, number))
}

// giveBack has the memory class give back so many bytes, or all, once no sample is being added.
func (r *running) giveBack(bytes int64) {
	for r.ram.GiveBack(bytes, "a test") == 0 {
		runtime.Gosched()
	}
}

// segments reads batches and acknowledges them, until a DROP, if drop is set, or else until a batch
// has named a segment that was not dropped since. It returns the segment. It checks that segments
// are announced once, before the first batch that names them.
func (x *client) segments(told map[uint32]bool, drop bool) uint32 {
	x.t.Helper()
	for number, named := range told {
		if named && !drop {
			return number
		}
	}
	for {
		f, err := x.receive()
		if err != nil {
			x.t.Fatal(err)
		}
		switch f.kind {
		case protocol.Segment:
			number := binary.LittleEndian.Uint32(f.payload)
			if told[number] {
				x.t.Errorf("segment %#x was announced twice", number)
			}
			x.mapSegment(f)
			told[number] = false
		case protocol.Drop:
			number := binary.LittleEndian.Uint32(f.payload)
			delete(told, number)
			switch {
			case number < firstClassSegment:
				// An extra one of the staging buffer, for samples of a batch that were given back
				// after it was laid out.
			case drop:
				return number
			default:
				x.t.Error("a segment was dropped")
			}
		case protocol.Batch:
			first := uint32(0)
			for _, number := range classSegments(f) {
				named, announced := told[number]
				if !announced {
					x.t.Fatalf("a batch names segment %#x, which was dropped or never announced",
						number)
				}
				if !named {
					told[number], first = true, number
				}
			}
			le, n := binary.LittleEndian, int(binary.LittleEndian.Uint32(f.payload[16:]))
			var slots []uint32
			for p := f.payload[32+36*n:]; len(p) > 0; p = p[4:] {
				slots = append(slots, le.Uint32(p))
			}
			x.send(ack(1, le.Uint32(f.payload[8:]), le.Uint32(f.payload[12:]), 0, slots...))
			if first != 0 && !drop {
				return first
			}
		case protocol.Error:
			x.t.Fatalf("ERROR %s", f.payload)
		}
	}
}

// TestSegmentIsAnnouncedDroppedAndGone follows segments of the memory class through a connection:
// each comes before the first batch that names it, and DROP after the last one. Its memory counts
// as free after the process has sent GONE, or has disconnected.
func TestSegmentIsAnnouncedDroppedAndGone(t *testing.T) {
	r := start(t)
	x := r.hello()
	x.open(func(m *protocol.OpenMessage) { m.Stream.Epochs, m.Arguments["memory"] = 0, "2000B" })
	told := map[uint32]bool{}
	x.send(iterate(1, 0, 0))
	for range 3 {
		number := x.segments(told, false)
		x.send(gone(number + 1)) // of no effect
		x.send(gone(7))
		taken := r.ram.Taken()
		r.giveBack(1)
		if dropped := x.segments(told, true); dropped != number {
			t.Errorf("segment %#x was dropped, want %#x", dropped, number)
		}
		if left := r.ram.Leaving(time.Time{}); left == 0 || left > taken {
			t.Errorf("%d of %d bytes are leaving", left, taken)
		}
		x.send(gone(number))
		r.leaves()
	}
	number := x.segments(told, false)
	r.giveBack(1)
	if dropped := x.segments(told, true); dropped != number {
		t.Errorf("segment %#x was dropped, want %#x", dropped, number)
	}
	x.close() // without GONE
	r.leaves()
	r.end()
}

// leaves waits until no memory is leaving: what was given back is free.
func (r *running) leaves() {
	r.t.Helper()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for end := time.Now().Add(time.Minute); r.ram.Leaving(time.Time{}) > 0; <-ticker.C {
		if time.Now().After(end) {
			r.t.Fatalf("%d bytes are still leaving", r.ram.Leaving(time.Time{}))
		}
	}
}

// TestSegmentThatWasNotAnnouncedIsNotDropped checks that no segment is announced to a process that
// was sent no batch, and that such a process does not keep a segment from being freed.
func TestSegmentThatWasNotAnnouncedIsNotDropped(t *testing.T) {
	r := start(t)
	x, other := r.hello(), r.hello()
	x.open(func(m *protocol.OpenMessage) { m.Stream.Epochs, m.Arguments["memory"] = 0, "2000B" })
	other.open(func(m *protocol.OpenMessage) { m.Job, m.Arguments["memory"] = "k", "2000B" })
	told := map[uint32]bool{}
	x.send(iterate(1, 0, 0))
	number := x.segments(told, false)
	r.giveBack(1 << 20)
	x.segments(told, true)
	x.send(gone(number))
	r.leaves()
	other.call("stats", "{}")
	if _, announced := other.maps[number]; announced {
		t.Error("the other process was told of the segment")
	}
	x.close()
	other.close()
	r.end()
}

// TestMalformedGoneIsRefused checks a GONE of the wrong length.
func TestMalformedGoneIsRefused(t *testing.T) {
	r := start(t)
	x := r.hello()
	x.send(protocol.AppendFrame(nil, protocol.Gone, []byte{1, 2, 3}))
	if m := x.refused(); m.Kind != protocol.KindProtocol {
		t.Errorf("%+v", m)
	}
	x.close()
	r.end()
}
