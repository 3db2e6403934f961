package exchange

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
	headerSize  = 20
	requestSize = 12 // u32 tag, u32 sample, u32 length that the client expects

	// MaxSample is how large a sample may be.
	MaxSample = 1<<31 - 1
	// MaxWindow is how many requests may be under way on one connection.
	MaxWindow = 4096

	maxMessage = 512 // bytes of text in a FAILURE
)

type kind uint8

// From client to server.
const (
	kindRequest kind = 1 // n times: u32 tag, u32 sample, u32 length; tags are free
	kindCancel  kind = 3 // n times u32 tag: no longer wanted; its answer may be a FAILURE, but comes
	kindPing    kind = 4 // empty; answered by PONG
)

// From server to client.
const (
	kindSample  kind = 129 // tag, sample; payload: its bytes
	kindFailure kind = 130 // tag, sample, code; payload: text for people
	kindPong    kind = 131 // empty
)

type code uint8

const (
	codeNotHeld   code = 1
	codeFailed    code = 2
	codeCancelled code = 3
	codeLength    code = 4 // the sample has another length than the client expects
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errFrame is at the root of every decoding error: what came is no frame.
var errFrame = errors.New("not a frame of the sample exchange")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errFrame, fmt.Sprintf(format, args...))
}

type header struct {
	kind   kind
	code   code
	tag    uint32
	sample int32
	length uint32
	sum    uint32
}

// put writes h into b; payload is the payload's digest.
func (h header) put(b []byte, payload uint32) {
	_ = b[headerSize-1]
	b[0], b[1], b[2], b[3] = byte(h.kind), byte(h.code), 0, 0
	binary.LittleEndian.PutUint32(b[4:], h.tag)
	binary.LittleEndian.PutUint32(b[8:], uint32(h.sample))
	binary.LittleEndian.PutUint32(b[12:], h.length)
	binary.LittleEndian.PutUint32(b[16:], crc32.Update(payload, castagnoli, b[:16]))
}

// sealed says whether payload's sum and the header make the sum in b.
func sealed(b []byte, payload uint32) bool {
	return binary.LittleEndian.Uint32(b[16:]) == crc32.Update(payload, castagnoli, b[:16])
}

// parse reads a header from b and checks every field that can be checked
// without the payload. fromServer: which direction it came from.
func parse(b []byte, fromServer bool) (header, error) {
	_ = b[headerSize-1]
	h := header{
		kind: kind(b[0]), code: code(b[1]),
		tag:    binary.LittleEndian.Uint32(b[4:]),
		sample: int32(binary.LittleEndian.Uint32(b[8:])),
		length: binary.LittleEndian.Uint32(b[12:]),
		sum:    binary.LittleEndian.Uint32(b[16:]),
	}
	if b[2]|b[3] != 0 || fromServer != (h.kind >= kindSample) {
		return h, malformed("header % x", b[:headerSize])
	}
	unit, limit := uint32(1), uint32(0)
	switch h.kind {
	case kindRequest:
		unit, limit = requestSize, requestSize*MaxWindow
	case kindCancel:
		unit, limit = 4, 4*MaxWindow
	case kindPing, kindPong:
	case kindSample:
		limit = MaxSample
	case kindFailure:
		limit = maxMessage
	default:
		return h, malformed("header % x", b[:headerSize])
	}
	if h.length > limit || h.length%unit != 0 {
		return h, malformed("frame of kind %d with %d bytes; a multiple of %d up to %d is allowed", h.kind, h.length, unit, limit)
	}
	switch tagged := h.kind == kindSample || h.kind == kindFailure; {
	case !tagged && (h.tag != 0 || h.sample != 0), h.sample < 0,
		(h.code != 0) != (h.kind == kindFailure), h.code > codeLength:
		return h, malformed("header % x", b[:headerSize])
	}
	return h, nil
}

// A request as it stands in a REQUEST.
type request struct {
	tag    uint32
	sample int32
	length uint32
}

func appendRequest(b []byte, r request) []byte {
	b = binary.LittleEndian.AppendUint32(b, r.tag)
	b = binary.LittleEndian.AppendUint32(b, uint32(r.sample))
	return binary.LittleEndian.AppendUint32(b, r.length)
}

// parseRequest reads one request from b, for a connection with a window.
func parseRequest(b []byte, window int) (request, error) {
	r := request{
		tag:    binary.LittleEndian.Uint32(b),
		sample: int32(binary.LittleEndian.Uint32(b[4:])),
		length: binary.LittleEndian.Uint32(b[8:]),
	}
	if r.tag >= uint32(window) || r.sample < 0 || r.length > MaxSample {
		return r, malformed("request with tag %d, sample %d, length %d; the window is %d", r.tag, r.sample, r.length, window)
	}
	return r, nil
}

// appendFrame appends a whole frame.
func appendFrame(b []byte, h header, payload []byte) []byte {
	h.length = uint32(len(payload))
	at := len(b)
	b = append(b, make([]byte, headerSize)...)
	h.put(b[at:], digest.Of(payload))
	return append(b, payload...)
}
