// Package wire is what two ends of an exchange of samples say to each other, as bytes: frames, each
// a header and a payload. docs/FORMATS.md describes them. What is read is checked against limits
// that stand before the first frame.
//
// It does no I/O and keeps no state.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/hdmlp/hdmlp/internal/digest"
)

// Version of the frames and of the handshake.
//
//   - 1: first version.
//   - 2: payloads are summed by the samples' digest, which was a CRC-32C.
//   - 3: kind 2, ASK, is gone; proofs are made as the control protocol's.
const Version = 3

// A frame is a header and a payload. All integers are little-endian:
//
//	1  kind
//	1  code: why, in a failure; else 0
//	2  zero
//	4  tag
//	4  sample
//	4  length of the payload
//	4  CRC-32C of the 16 bytes above, begun with the payload's digest
//
// That the payload comes first in the sum lets a sender sum a sample once, and
// send it with any header.
const (
	HeaderSize  = 20
	RequestSize = 12 // u32 tag, u32 sample, u32 length that the client expects

	// MaxSample is how large a sample may be.
	MaxSample = 1<<31 - 1
	// MaxWindow is how many requests may be under way on one connection.
	MaxWindow = 4096

	MaxMessage = 512 // bytes of text in a FAILURE
)

// Kind is what a frame is.
type Kind uint8

// From client to server.
const (
	KindRequest Kind = 1 // n times: u32 tag, u32 sample, u32 length; tags are free
	// n times u32 tag: no longer wanted; its answer may be a FAILURE, but comes
	KindCancel Kind = 3
	KindPing   Kind = 4 // empty; answered by PONG
)

// From server to client.
const (
	KindSample  Kind = 129 // tag, sample; payload: its bytes
	KindFailure Kind = 130 // tag, sample, code; payload: text for people
	KindPong    Kind = 131 // empty
)

// Code says in a FAILURE why.
type Code uint8

const (
	CodeNotHeld   Code = 1
	CodeFailed    Code = 2
	CodeCancelled Code = 3
	CodeLength    Code = 4 // the sample has another length than the client expects
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrFrame is at the root of every decoding error: what came is no frame.
var ErrFrame = errors.New("not a frame of the sample exchange")

// Malformed is an ErrFrame that says what is wrong.
func Malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrFrame, fmt.Sprintf(format, args...))
}

// Header is a frame without its payload.
type Header struct {
	Kind   Kind
	Code   Code
	Tag    uint32
	Sample int32
	Length uint32 // of the payload
}

// Put writes h into b; payload is the payload's digest.
func (h Header) Put(b []byte, payload uint32) {
	_ = b[HeaderSize-1]
	b[0], b[1], b[2], b[3] = byte(h.Kind), byte(h.Code), 0, 0
	binary.LittleEndian.PutUint32(b[4:], h.Tag)
	binary.LittleEndian.PutUint32(b[8:], uint32(h.Sample))
	binary.LittleEndian.PutUint32(b[12:], h.Length)
	binary.LittleEndian.PutUint32(b[16:], crc32.Update(payload, castagnoli, b[:16]))
}

// Sealed reports whether payload's sum and the header make the sum in b.
func Sealed(b []byte, payload uint32) bool {
	return binary.LittleEndian.Uint32(b[16:]) == crc32.Update(payload, castagnoli, b[:16])
}

// Parse reads a header from b and checks every field that can be checked
// without the payload. fromServer: which direction it came from.
func Parse(b []byte, fromServer bool) (Header, error) {
	_ = b[HeaderSize-1]
	h := Header{
		Kind: Kind(b[0]), Code: Code(b[1]),
		Tag:    binary.LittleEndian.Uint32(b[4:]),
		Sample: int32(binary.LittleEndian.Uint32(b[8:])),
		Length: binary.LittleEndian.Uint32(b[12:]),
	}
	if b[2]|b[3] != 0 || fromServer != (h.Kind >= KindSample) {
		return h, Malformed("header % x", b[:HeaderSize])
	}
	unit, limit := uint32(1), uint32(0)
	switch h.Kind {
	case KindRequest:
		unit, limit = RequestSize, RequestSize*MaxWindow
	case KindCancel:
		unit, limit = 4, 4*MaxWindow
	case KindPing, KindPong:
	case KindSample:
		limit = MaxSample
	case KindFailure:
		limit = MaxMessage
	default:
		return h, Malformed("header % x", b[:HeaderSize])
	}
	if h.Length > limit || h.Length%unit != 0 {
		return h, Malformed("frame of kind %d with %d bytes; a multiple of %d up to %d is allowed",
			h.Kind, h.Length, unit, limit)
	}
	switch tagged := h.Kind == KindSample || h.Kind == KindFailure; {
	case !tagged && (h.Tag != 0 || h.Sample != 0), h.Sample < 0,
		(h.Code != 0) != (h.Kind == KindFailure), h.Code > CodeLength:
		return h, Malformed("header % x", b[:HeaderSize])
	}
	return h, nil
}

// Request is one of those in a REQUEST.
type Request struct {
	Tag    uint32
	Sample int32
	Length uint32 // that the client expects
}

// AppendRequest appends one request.
func AppendRequest(b []byte, r Request) []byte {
	b = binary.LittleEndian.AppendUint32(b, r.Tag)
	b = binary.LittleEndian.AppendUint32(b, uint32(r.Sample))
	return binary.LittleEndian.AppendUint32(b, r.Length)
}

// ParseRequest reads one request from b, for a connection with a window.
func ParseRequest(b []byte, window int) (Request, error) {
	r := Request{
		Tag:    binary.LittleEndian.Uint32(b),
		Sample: int32(binary.LittleEndian.Uint32(b[4:])),
		Length: binary.LittleEndian.Uint32(b[8:]),
	}
	if r.Tag >= uint32(window) || r.Sample < 0 || r.Length > MaxSample {
		return r, Malformed("request with tag %d, sample %d, length %d; the window is %d", r.Tag,
			r.Sample, r.Length, window)
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
