// Package wire encodes and decodes the frames that the two ends of a sample exchange send to each
// other: a header and a payload each. docs/FORMATS.md describes them. Input is checked against
// limits that are fixed before the first frame.
//
// The package does no I/O and keeps no state.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"time"

	"github.com/hdmlp/hdmlp/internal/lib/digest"
)

// Version is the version of the frames and of the handshake.
//
//   - 1: first version.
//   - 2: payloads are checksummed by the samples' digest instead of CRC-32C.
//   - 3: kind 2, ASK, was removed; proofs are made as in the control protocol.
//   - 5: requests say whether they take forms, which come in frames of kind 132.
const Version = 5

// A frame is a header and a payload. All integers are little-endian:
//
//	1  kind
//	1  code of a failure, or kind of a form; else 0
//	2  zero
//	4  tag
//	4  sample
//	4  length of the payload
//	4  CRC-32C of the 16 bytes above, seeded with the payload's digest
//
// Since the payload's digest seeds the checksum, a sender computes a sample's digest once and can
// send the sample with any header.
const (
	HeaderSize  = 20
	RequestSize = 16 // of a Request: four u32

	// MaxSample is the largest size of a sample, and of a form.
	MaxSample = 1<<31 - 1
	// MaxWindow is the largest number of requests in flight on one connection.
	MaxWindow = 4096

	MaxMessage = 512 // bytes of text in a FAILURE
)

// Kind is the kind of a frame.
type Kind uint8

// From client to server.
const (
	KindRequest Kind = 1 // n times a Request; the tags must be free
	// n times: u32 tag of a request that is no longer wanted; it is still answered, maybe by
	// FAILURE
	KindCancel Kind = 3
	KindPing   Kind = 4 // empty; answered by PONG
)

// From server to client.
const (
	KindSample  Kind = 129 // tag, sample; payload: its bytes
	KindFailure Kind = 130 // tag, sample, code; payload: text for people
	KindPong    Kind = 131 // empty
	KindForm    Kind = 132 // tag, sample, code: the form's kind; payload: the form's bytes
)

// Answers reports whether frames of the kind have what was requested: a sample, or a form of it.
func (k Kind) Answers() bool { return k == KindSample || k == KindForm }

// Code is the reason in a FAILURE, or the kind of the form in a FORM, which only what makes and
// decodes forms interprets.
type Code uint8

const (
	CodeNotHeld   Code = 1
	CodeFailed    Code = 2
	CodeCancelled Code = 3
	CodeLength    Code = 4 // the sample has another length than the client expects
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrFrame is wrapped by every decoding error.
var ErrFrame = errors.New("invalid frame of the sample exchange")

// Malformed returns an ErrFrame with a description of what is wrong.
func Malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrFrame, fmt.Sprintf(format, args...))
}

// Header is a frame without its payload.
type Header struct {
	Kind Kind
	Code Code
	// Waited is how long the server waited for the sample, in units of WaitUnit, rounded down, if it
	// had to read the sample from the source; only in SAMPLE.
	Waited uint16
	Tag    uint32
	Sample int32
	Length uint32 // of the payload
}

// WaitUnit is the unit of Header.Waited: the longest time that it can state is 16 s.
const WaitUnit = 250 * time.Microsecond

// Wait returns the Waited of a header for a time; one that is too long is stated as the longest.
func Wait(t time.Duration) uint16 {
	return uint16(min(max(t/WaitUnit, 0), math.MaxUint16))
}

// Put encodes h into b; payload is the payload's digest.
func (h Header) Put(b []byte, payload uint32) {
	_ = b[HeaderSize-1]
	b[0], b[1] = byte(h.Kind), byte(h.Code)
	binary.LittleEndian.PutUint16(b[2:], h.Waited)
	binary.LittleEndian.PutUint32(b[4:], h.Tag)
	binary.LittleEndian.PutUint32(b[8:], uint32(h.Sample))
	binary.LittleEndian.PutUint32(b[12:], h.Length)
	binary.LittleEndian.PutUint32(b[16:], crc32.Update(payload, castagnoli, b[:16]))
}

// Sealed reports whether the checksum in header b matches the header and the payload's digest.
func Sealed(b []byte, payload uint32) bool {
	return binary.LittleEndian.Uint32(b[16:]) == crc32.Update(payload, castagnoli, b[:16])
}

// Parse decodes a header from b and checks every field that can be checked without the payload.
// fromServer is the direction of the frame.
func Parse(b []byte, fromServer bool) (Header, error) {
	_ = b[HeaderSize-1]
	h := Header{
		Kind: Kind(b[0]), Code: Code(b[1]), Waited: binary.LittleEndian.Uint16(b[2:]),
		Tag:    binary.LittleEndian.Uint32(b[4:]),
		Sample: int32(binary.LittleEndian.Uint32(b[8:])),
		Length: binary.LittleEndian.Uint32(b[12:]),
	}
	if h.Waited != 0 && h.Kind != KindSample || fromServer != (h.Kind >= KindSample) {
		return h, Malformed("header % x", b[:HeaderSize])
	}
	unit, limit := uint32(1), uint32(0)
	switch h.Kind {
	case KindRequest:
		unit, limit = RequestSize, RequestSize*MaxWindow
	case KindCancel:
		unit, limit = 4, 4*MaxWindow
	case KindPing, KindPong:
	case KindSample, KindForm:
		limit = MaxSample
	case KindFailure:
		limit = MaxMessage
	default:
		return h, Malformed("header % x", b[:HeaderSize])
	}
	if h.Length > limit || h.Length%unit != 0 {
		return h, Malformed("frame of kind %d with %d bytes; the size must be a multiple of %d "+
			"and at most %d",
			h.Kind, h.Length, unit, limit)
	}
	failure := h.Kind == KindFailure
	switch tagged := failure || h.Kind.Answers(); {
	case !tagged && (h.Tag != 0 || h.Sample != 0), h.Sample < 0,
		(h.Code != 0) != (failure || h.Kind == KindForm), failure && h.Code > CodeLength:
		return h, Malformed("header % x", b[:HeaderSize])
	}
	return h, nil
}

// Request is one request of a REQUEST frame.
type Request struct {
	Tag    uint32
	Sample int32
	Length uint32 // of the sample, that the client expects
	// Most is how many bytes the answer may have if it is a form; 0: it must be the sample.
	Most uint32
	// Unpack: a form is the answer only if it does not give the sample.
	Unpack bool
}

// unpack is the bit of Most that says Unpack.
const unpack = 1 << 31

// AppendRequest appends one request.
func AppendRequest(b []byte, r Request) []byte {
	b = binary.LittleEndian.AppendUint32(b, r.Tag)
	b = binary.LittleEndian.AppendUint32(b, uint32(r.Sample))
	b = binary.LittleEndian.AppendUint32(b, r.Length)
	if r.Unpack {
		r.Most |= unpack
	}
	return binary.LittleEndian.AppendUint32(b, r.Most)
}

// ParseRequest decodes one request from b, for a connection with the window.
func ParseRequest(b []byte, window int) (Request, error) {
	r := Request{
		Tag:    binary.LittleEndian.Uint32(b),
		Sample: int32(binary.LittleEndian.Uint32(b[4:])),
		Length: binary.LittleEndian.Uint32(b[8:]),
		Most:   binary.LittleEndian.Uint32(b[12:]),
	}
	r.Unpack = r.Most&unpack != 0
	r.Most &^= unpack
	if r.Tag >= uint32(window) || r.Sample < 0 || r.Length > MaxSample || r.Unpack && r.Most == 0 {
		return r, Malformed("request with tag %d, sample %d, length %d, most %d; the window is %d",
			r.Tag, r.Sample, r.Length, r.Most, window)
	}
	return r, nil
}

// AppendFrame appends a whole frame.
func AppendFrame(b []byte, h Header, payload []byte) []byte {
	h.Length = uint32(len(payload))
	at := len(b)
	b = append(b, make([]byte, HeaderSize)...)
	h.Put(b[at:], digest.Of(payload))
	return append(b, payload...)
}
