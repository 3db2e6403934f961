package protocol

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestBatchLayout pins the only binary message that Python decodes, byte by byte.
func TestBatchLayout(t *testing.T) {
	got := AppendBatch(nil, &BatchMessage{
		Generation: 1, Epoch: 2, Step: 3, Audit: 4,
		Labels: []int64{-1, 5}, Offsets: []uint64{6, 7}, Lengths: []uint64{8, 9},
		IDs: []uint32{10, 11}, Occurrences: []uint32{0, 3}, Segments: []uint32{0, 1 << 31},
		Slots: []uint32{12}, Left: []LeftSample{{13, 14, 15, 16, true}, {Position: 17}},
	})
	want := "9c000000" + "84" + "000000" + // 156 bytes, BATCH
		"0100000000000000" + "02000000" + "03000000" + "02000000" + "01000000" +
		"0400000000000000" +
		"ffffffffffffffff" + "0500000000000000" +
		"0600000000000000" + "0700000000000000" +
		"0800000000000000" + "0900000000000000" +
		"0a000000" + "0b000000" + "00000000" + "03000000" + "00000000" + "00000080" + "0c000000" +
		"0d000080" + "0e000000" + "0f00000000000000" + "1000000000000000" +
		"11000000" + strings.Repeat("00", 20)
	if diff := cmp.Diff(want, hex.EncodeToString(got)); diff != "" {
		t.Error(diff)
	}
}

// TestSmallFramesLayout pins the other binary frames, byte by byte.
func TestSmallFramesLayout(t *testing.T) {
	for want, got := range map[string][]byte{
		"10000000" + "83" + "000000" + "05000000" + "03000000" +
			"0000010000000000": AppendSegment(nil, 5, SegmentWritable|SegmentReturns, 1<<16),
		"04000000" + "89" + "000000" + "05000000":         AppendDrop(nil, 5),
		"08000000" + "87" + "000000" + "0700000000000000": AppendEnd(nil, 7),
		"02000000" + "8a" + "000000" + "7b7d":             AppendFrame(nil, Renew, []byte(`{}`)),
	} {
		if diff := cmp.Diff(want, hex.EncodeToString(got)); diff != "" {
			t.Error(diff)
		}
	}
}

// TestSmallFramesAreDecodedAtTheirExactLengthOnly decodes ITERATE, WAIT, RAISED and GONE.
func TestSmallFramesAreDecodedAtTheirExactLengthOnly(t *testing.T) {
	iterate, err := hex.DecodeString("0100000000000000" + "02000000" + "03000000")
	if err != nil {
		t.Fatal(err)
	}
	if m, err := DecodeIterate(iterate); err != nil ||
		m != (IterateMessage{Generation: 1, Epoch: 2, Step: 3}) {
		t.Errorf("ITERATE: %+v, %v", m, err)
	}
	if g, err := DecodeGeneration(iterate[:8]); err != nil || g != 1 {
		t.Errorf("generation: %d, %v", g, err)
	}
	if segment, err := DecodeGone(iterate[8:12]); err != nil || segment != 2 {
		t.Errorf("GONE: %d, %v", segment, err)
	}
	for n := range 20 {
		p := make([]byte, n)
		if _, err := DecodeGone(p); n != 4 && !errors.Is(err, ErrProtocol) {
			t.Errorf("GONE of %d bytes: %v", n, err)
		}
		if _, err := DecodeIterate(p); n != 16 && !errors.Is(err, ErrProtocol) {
			t.Errorf("ITERATE of %d bytes: %v", n, err)
		}
		if _, err := DecodeGeneration(p); n != 8 && !errors.Is(err, ErrProtocol) {
			t.Errorf("generation of %d bytes: %v", n, err)
		}
	}
}

// TestFramesUpToTheLimitAreAccepted checks the limits in both directions.
func TestFramesUpToTheLimitAreAccepted(t *testing.T) {
	for kind, limit := range map[Type]int{
		Hello: maxHello,
		Open:  maxRequest,
		Call:  maxRequest,
		Ack:   maxRequest,
		Give:  maxRequest,
	} {
		payload := bytes.Repeat([]byte("x"), limit+1)
		if _, p, err := ReadFrame(bytes.NewReader(AppendFrame(nil, kind, payload[:limit])),
			nil); len(p) != limit || err != nil {
			t.Errorf("type %d with %d bytes: %d were read, %v", kind, limit, len(p), err)
		}
		if _, _, err := ReadFrame(bytes.NewReader(AppendFrame(nil, kind, payload)),
			nil); !errors.Is(err, ErrProtocol) {
			t.Errorf("type %d with %d bytes: %v", kind, limit+1, err)
		}
	}
	before := []byte("before")
	fits := make([]byte, MaxPayload-len(`""`))
	for i := range fits {
		fits[i] = 'x'
	}
	if b, err := AppendJSON(before, Reply, string(fits)); err != nil ||
		len(b) != len(before)+headerSize+MaxPayload {
		t.Errorf("a frame that just fits has %d bytes, %v", len(b), err)
	}
	if b, err := AppendJSON(before, Reply, string(fits)+"x"); !errors.Is(err, ErrProtocol) ||
		!bytes.Equal(b, before) {
		t.Errorf("a frame that does not fit has %d bytes, %v", len(b), err)
	}
	one := make([]uint64, MaxBatch)
	batch := AppendBatch(nil, &BatchMessage{
		Labels: make([]int64, MaxBatch), Offsets: one, Lengths: one,
		IDs: make([]uint32, MaxBatch), Occurrences: make([]uint32, MaxBatch),
		Segments: make([]uint32, MaxBatch), Slots: make([]uint32, MaxBatch),
	})
	if n := len(batch) - headerSize; n > MaxPayload {
		t.Errorf("the largest batch has %d bytes, the limit is %d", n, MaxPayload)
	}
}

// TestLengthAloneAllocatesNothing announces a large frame and sends one byte of it.
func TestLengthAloneAllocatesNothing(t *testing.T) {
	said := binary.LittleEndian.AppendUint32(nil, maxRequest)
	said = append(said, byte(Call), 0, 0, 0, '{')
	buf := make([]byte, 64)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, _, err := ReadFrame(bytes.NewReader(said), buf); !errors.Is(err, ErrProtocol) {
		t.Error(err)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > maxRequest/4 {
		t.Errorf("a frame of which one byte arrived allocated %d bytes", took)
	}
}

func TestReadFrame(t *testing.T) {
	frame := AppendFrame(nil, Wait, []byte{1, 2, 3, 4, 5, 6, 7, 8})
	big := AppendFrame(nil, Call, bytes.Repeat([]byte("x"), 100_000))
	r := bytes.NewReader(append(append([]byte{}, frame...), big...))
	buf := make([]byte, 16)
	typ, p, err := ReadFrame(r, buf)
	if typ != Wait || len(p) != 8 || err != nil {
		t.Fatalf("type %d, %d bytes, %v", typ, len(p), err)
	}
	typ, p, err = ReadFrame(r, buf)
	if typ != Call || len(p) != 100_000 || err != nil {
		t.Fatalf("type %d, %d bytes, %v", typ, len(p), err)
	}
	if _, _, err = ReadFrame(r, buf); !errors.Is(err, io.EOF) {
		t.Fatalf("at the end: %v", err)
	}
	for name, bad := range map[string][]byte{
		"cut header":          frame[:5],
		"cut payload":         frame[:12],
		"cut large payload":   big[:50_000],
		"too large":           {1, 0, 0, 1, byte(Call), 0, 0, 0},
		"unknown type":        {0, 0, 0, 0, 77, 0, 0, 0},
		"a daemon's frame":    {0, 0, 0, 0, byte(Batch), 0, 0, 0},
		"reserved bytes used": {0, 0, 0, 0, byte(Wait), 1, 0, 0},
		"an HTTP request":     []byte("GET / HTTP/1.1\r\n\r\n"),
	} {
		if _, _, err := ReadFrame(bytes.NewReader(bad), buf); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func ackPayload(m AckMessage) []byte {
	le := binary.LittleEndian
	p := le.AppendUint64(nil, m.Generation)
	p = le.AppendUint32(p, m.Epoch)
	p = le.AppendUint32(p, m.Step)
	p = le.AppendUint64(p, m.StallNanos)
	p = le.AppendUint64(p, m.PythonNanos)
	p = le.AppendUint64(p, m.Audit)
	p = le.AppendUint32(p, uint32(len(m.Slots)))
	for _, s := range m.Slots {
		p = le.AppendUint32(p, s)
	}
	return p
}

func TestDecodeAck(t *testing.T) {
	want := AckMessage{
		Generation:  1,
		Epoch:       2,
		Step:        3,
		StallNanos:  4,
		PythonNanos: 3,
		Audit:       5,
		Slots:       []uint32{6, 7},
	}
	got, err := DecodeAck(ackPayload(want), nil)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	lying := ackPayload(want)
	binary.LittleEndian.PutUint32(lying[40:], 1<<30)
	// Python's part of the stall is larger than the stall.
	more := ackPayload(AckMessage{StallNanos: 4, PythonNanos: 5})
	for _, p := range [][]byte{nil, lying, lying[:43], ackPayload(want)[:49], more} {
		if _, err := DecodeAck(p, nil); !errors.Is(err, ErrProtocol) {
			t.Errorf("%d bytes: %v", len(p), err)
		}
	}
}

func TestDecodeJSON(t *testing.T) {
	for in, ok := range map[string]bool{
		`{"protocol":1,"version":"x","pid":3}`:          true,
		`{"protocol":1,"version":"x","pid":3,"more":1}`: false,
		`{"protocol":1} {}`:                             false,
		`{"protocol":"one"}`:                            false,
		``:                                              false,
		`[]`:                                            false,
	} {
		var m HelloMessage
		if err := DecodeJSON([]byte(in), &m); (err == nil) != ok ||
			(err != nil && !errors.Is(err, ErrProtocol)) {
			t.Errorf("%s: %v", in, err)
		}
	}
}

// FuzzReadFrame feeds the daemon's decoders with what a hostile process could send.
func FuzzReadFrame(f *testing.F) {
	f.Add(AppendFrame(nil, Ack, ackPayload(AckMessage{Slots: []uint32{1}})))
	f.Add(AppendFrame(nil, Iterate, make([]byte, 16)))
	f.Add(AppendFrame(nil, Wait, make([]byte, 8)))
	f.Add(AppendFrame(nil, Open, []byte(`{"job":"x","stream":{"seed":null}}`)))
	f.Add(AppendFrame(nil, Open,
		[]byte(
			`{"job":"x","stream":{"subset":{"count":3},`+
				`"given":{"batches":1,"entries":2,"epochs":1,"first":0}}}`,
		)))
	f.Add(AppendFrame(nil, Give, []byte(`{"epoch":1,"entries":2}`)))
	f.Add(AppendFrame(nil, Call, []byte(`{"id":1,"method":"stats","params":{}}`)))
	f.Fuzz(func(t *testing.T, in []byte) {
		r := bytes.NewReader(in)
		buf := make([]byte, 64)
		for {
			typ, p, err := ReadFrame(r, buf)
			if err != nil {
				if !errors.Is(err, ErrProtocol) && !errors.Is(err, io.EOF) {
					t.Fatal(err)
				}
				return
			}
			if len(p) > len(in) {
				t.Fatalf("a payload of %d bytes from %d bytes", len(p), len(in))
			}
			switch typ {
			case Ack:
				m, err := DecodeAck(p, nil)
				if err == nil && !bytes.Equal(ackPayload(m), p) {
					t.Fatalf("ACK % x decoded to %+v", p, m)
				}
			case Iterate:
				_, _ = DecodeIterate(p)
			case Wait:
				_, _ = DecodeGeneration(p)
			case Hello:
				_ = DecodeJSON(p, new(HelloMessage))
			case Open:
				_ = DecodeJSON(p, new(OpenMessage))
			case Call:
				_ = DecodeJSON(p, new(CallMessage))
			case Give:
				_ = DecodeJSON(p, new(GiveMessage))
			}
		}
	})
}
