// Package protocol is the protocol between the daemon and training processes: frames over a Unix
// stream socket, JSON for control, fixed binary layouts for what is sent once per batch.
// docs/FORMATS.md describes it byte by byte; the Python side is python/hdmlp/_lib/protocol.py.
//
// The package encodes, decodes and validates; it has no state and no goroutines.
package protocol

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Version is the version of the protocol.
//
//   - 1: first version.
//   - 2: OPEN and calls about a dataset carry file descriptors of the dataset's root and "/",
//     RENEW requests them again; OPEN states whether to verify bytes.
//   - 3: ACK has the part of the stall that was spent in Python.
//   - 4: samples in memory lie in several segments, which come when a batch first names them, and
//     are dropped one by one; GONE reports that a process no longer maps one.
//   - 5: RAISED reports that an error has reached the training loop.
//   - 6: datasets have the options of their kind, and may come as a manifest; a batch has the
//     places of several outputs.
const Version = 7

const (
	headerSize = 8        // u32 payload length, u8 type, 3 bytes of zero
	MaxPayload = 16 << 20 // limit on a frame's payload, in bytes
	// Limits on frames from a process: HELLO, and all others, of which a list of slots is the
	// longest.
	maxHello   = 4 << 10
	maxRequest = 1 << 20
)

// Type is the type of a frame.
type Type uint8

// Frames from a process to the daemon.
const (
	Hello   Type = 1  // JSON HelloMessage; first on every connection
	Open    Type = 2  // JSON OpenMessage: create or join a job as one rank
	Iterate Type = 3  // IterateMessage, 16 bytes
	Ack     Type = 4  // AckMessage, 44 bytes and 4 per slot
	Wait    Type = 5  // u64 generation
	Call    Type = 6  // JSON CallMessage
	View    Type = 7  // JSON ViewMessage: answers Renew
	Give    Type = 8  // JSON GiveMessage, with a file descriptor: the order of another epoch
	Gone    Type = 9  // u32 segment: the process does not map it any more; answers Drop
	Raised  Type = 10 // u64 generation: its error has been raised in the training loop
)

// Frames from the daemon to a process.
const (
	Welcome  Type = 129 // JSON WelcomeMessage, with the log's file descriptor
	Opened   Type = 130 // JSON OpenedMessage
	Segment  Type = 131 // SegmentMessage, 16 bytes, with the segment's file descriptor
	Batch    Type = 132 // BatchMessage
	Reply    Type = 133 // JSON ReplyMessage
	Error    Type = 134 // JSON ErrorMessage
	End      Type = 135 // u64 generation
	Progress Type = 136 // JSON ProgressMessage
	Drop     Type = 137 // u32 segment
	Renew    Type = 138 // empty: reopen the dataset's root
)

// ErrProtocol is wrapped by every decoding error: the peer does not follow this protocol.
var ErrProtocol = errors.New("not the HDMLP protocol")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrProtocol, fmt.Sprintf(format, args...))
}

// ReadFrame reads one frame sent by a process. The payload is read into buf if it fits, and is then
// valid until buf is reused. ReadFrame returns io.EOF if the peer closed the connection between two
// frames.
func ReadFrame(r io.Reader, buf []byte) (Type, []byte, error) {
	var header [headerSize]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return 0, nil, malformed("the connection ended within a frame's header")
		}
		return 0, nil, err
	}
	size := binary.LittleEndian.Uint32(header[:])
	t := Type(header[4])
	if header[5]|header[6]|header[7] != 0 || t < Hello || t > Raised {
		return 0, nil, malformed("frame header % x", header)
	}
	limit := uint32(maxRequest)
	if t == Hello {
		limit = maxHello
	}
	if size > limit {
		return 0, nil, malformed("frame of type %d with %d bytes, the limit is %d", t, size, limit)
	}
	if int(size) > cap(buf) {
		// Grow as bytes arrive, so that a length alone allocates nothing.
		payload, err := io.ReadAll(io.LimitReader(r, int64(size)))
		if err == nil && len(payload) < int(size) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return 0, nil, malformed("frame of type %d: %v", t, err)
		}
		return t, payload, nil
	}
	payload := buf[:size]
	if _, err := io.ReadFull(r, payload); err != nil {
		return 0, nil, malformed("frame of type %d: %v", t, err)
	}
	return t, payload, nil
}

// AppendFrame appends a frame with the payload to dst.
func AppendFrame(dst []byte, t Type, payload []byte) []byte {
	dst = appendHeader(dst, t, len(payload))
	return append(dst, payload...)
}

func appendHeader(dst []byte, t Type, size int) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(size))
	return append(dst, byte(t), 0, 0, 0)
}

// IterateMessage requests the batches from (Epoch, Step) on.
type IterateMessage struct {
	Generation  uint64
	Epoch, Step uint32
}

// DecodeIterate decodes an Iterate payload.
func DecodeIterate(p []byte) (IterateMessage, error) {
	if len(p) != 16 {
		return IterateMessage{}, malformed("ITERATE of %d bytes, not 16", len(p))
	}
	return IterateMessage{
		Generation: binary.LittleEndian.Uint64(p),
		Epoch:      binary.LittleEndian.Uint32(p[8:]),
		Step:       binary.LittleEndian.Uint32(p[12:]),
	}, nil
}

// NoBatch is the epoch of an ACK that only returns slots.
const NoBatch = 1<<32 - 1

// AckMessage reports that a batch was yielded to the training loop, and returns slots.
type AckMessage struct {
	Generation  uint64
	Epoch, Step uint32
	StallNanos  uint64   // how long next() was blocked for this batch
	PythonNanos uint64   // part of StallNanos in which Python built the batch
	Audit       uint64   // set hash of the epoch's samples so far
	Slots       []uint32 // returned to the staging buffer
}

// DecodeAck decodes an Ack payload. It appends the slots to the given slice.
func DecodeAck(p []byte, slots []uint32) (AckMessage, error) {
	if len(p) < 44 {
		return AckMessage{}, malformed("ACK of %d bytes, at least 44 are needed", len(p))
	}
	m := AckMessage{
		Generation:  binary.LittleEndian.Uint64(p),
		Epoch:       binary.LittleEndian.Uint32(p[8:]),
		Step:        binary.LittleEndian.Uint32(p[12:]),
		StallNanos:  binary.LittleEndian.Uint64(p[16:]),
		PythonNanos: binary.LittleEndian.Uint64(p[24:]),
		Audit:       binary.LittleEndian.Uint64(p[32:]),
	}
	if m.PythonNanos > m.StallNanos {
		return AckMessage{}, malformed("ACK of %d ns of Python in a stall of %d ns",
			m.PythonNanos, m.StallNanos)
	}
	n := int(binary.LittleEndian.Uint32(p[40:]))
	p = p[44:]
	if len(p) != 4*n {
		return AckMessage{}, malformed("ACK of %d slots with %d bytes for them", n, len(p))
	}
	for ; len(p) > 0; p = p[4:] {
		slots = append(slots, binary.LittleEndian.Uint32(p))
	}
	m.Slots = slots
	return m, nil
}

// DecodeGeneration decodes the payload of Wait and of Raised.
func DecodeGeneration(p []byte) (generation uint64, err error) {
	if len(p) != 8 {
		return 0, malformed("a generation of %d bytes, not 8", len(p))
	}
	return binary.LittleEndian.Uint64(p), nil
}

// DecodeGone decodes a Gone payload.
func DecodeGone(p []byte) (segment uint32, err error) {
	if len(p) != 4 {
		return 0, malformed("GONE of %d bytes, not 4", len(p))
	}
	return binary.LittleEndian.Uint32(p), nil
}

// Segment flags.
const (
	SegmentWritable = 1
	SegmentReturns  = 2 // a page after the segment's bytes is a return ring for slots
	SegmentPrivate  = 4 // to be mapped privately: other processes are given the same batches
)

// AppendSegment appends the frame that announces a segment. The segment's file descriptor must be
// sent with the frame's first byte.
func AppendSegment(dst []byte, segment, flags uint32, size uint64) []byte {
	dst = appendHeader(dst, Segment, 16)
	dst = binary.LittleEndian.AppendUint32(dst, segment)
	dst = binary.LittleEndian.AppendUint32(dst, flags)
	return binary.LittleEndian.AppendUint64(dst, size)
}

// AppendDrop appends the frame that retires a segment.
func AppendDrop(dst []byte, segment uint32) []byte {
	dst = appendHeader(dst, Drop, 4)
	return binary.LittleEndian.AppendUint32(dst, segment)
}

// AppendEnd appends the frame that ends a generation.
func AppendEnd(dst []byte, generation uint64) []byte {
	dst = appendHeader(dst, End, 8)
	return binary.LittleEndian.AppendUint64(dst, generation)
}

// BatchMessage describes a batch in shared memory. Labels, IDs and Occurrences have one entry per
// sample; Offsets, Lengths and Segments have one per output and sample: those of the first output
// come first.
type BatchMessage struct {
	Generation  uint64
	Epoch, Step uint32
	Audit       uint64
	Labels      []int64
	Offsets     []uint64
	Lengths     []uint64
	IDs         []uint32
	Occurrences []uint32
	Segments    []uint32
	Slots       []uint32 // for the process to return
	Left        []LeftSample
}

// LeftSample is where the bytes of a sample are that the process is to transform itself.
type LeftSample struct {
	Position, Segment uint32
	Offset, Length    uint64
	Usual             bool // a file like others, of which only what is drawn is uncertain
}

// usualFlag is set in a position if LeftSample.Usual is.
const usualFlag = 1 << 31

// AppendBatch appends the batch's frame.
func AppendBatch(dst []byte, b *BatchMessage) []byte {
	n, m := len(b.Labels), len(b.Slots)
	left := len(b.Left)
	le := binary.LittleEndian
	dst = appendHeader(dst, Batch, 32+16*n+20*len(b.Offsets)+4*m+24*left)
	dst = le.AppendUint64(dst, b.Generation)
	dst = le.AppendUint32(dst, b.Epoch)
	dst = le.AppendUint32(dst, b.Step)
	dst = le.AppendUint32(dst, uint32(n))
	dst = le.AppendUint32(dst, uint32(m))
	dst = le.AppendUint64(dst, b.Audit)
	for _, v := range b.Labels {
		dst = le.AppendUint64(dst, uint64(v))
	}
	for _, v := range b.Offsets {
		dst = le.AppendUint64(dst, v)
	}
	for _, v := range b.Lengths {
		dst = le.AppendUint64(dst, v)
	}
	for _, v := range b.IDs {
		dst = le.AppendUint32(dst, v)
	}
	for _, v := range b.Occurrences {
		dst = le.AppendUint32(dst, v)
	}
	for _, v := range b.Segments {
		dst = le.AppendUint32(dst, v)
	}
	for _, v := range b.Slots {
		dst = le.AppendUint32(dst, v)
	}
	for _, l := range b.Left {
		position := l.Position
		if l.Usual {
			position |= usualFlag
		}
		dst = le.AppendUint32(dst, position)
		dst = le.AppendUint32(dst, l.Segment)
		dst = le.AppendUint64(dst, l.Offset)
		dst = le.AppendUint64(dst, l.Length)
	}
	return dst
}

// MaxBatch is the maximum number of samples in a batch's frame, which also has to hold slots, and
// samples that are left to the process (stage.MaxLeft), if they have one output.
const MaxBatch = (MaxPayload - 4096) / 44
