// Package exchangetest has what the tests of the exchange's two ends share.
package exchangetest

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"
	"net"
	"time"

	"github.com/hdmlp/hdmlp/internal/lib/digest"
	"github.com/hdmlp/hdmlp/internal/peers/exchange/wire"
)

// Script is a connection whose peer sends a script and reads nothing.
type Script struct {
	io.Reader
	net.Conn
}

func (s Script) Read(b []byte) (int, error)       { return s.Reader.Read(b) }
func (s Script) Write(b []byte) (int, error)      { return len(b), nil }
func (s Script) Close() error                     { return nil }
func (s Script) SetDeadline(time.Time) error      { return nil }
func (s Script) SetReadDeadline(time.Time) error  { return nil }
func (s Script) SetWriteDeadline(time.Time) error { return nil }

// Resealed corrects the checksums of the complete frames in b: a fuzzer does not find valid
// checksums, but has to reach the code after their verification.
func Resealed(b []byte) []byte {
	b = bytes.Clone(b)
	for at := 0; len(b)-at >= wire.HeaderSize; {
		end := at + wire.HeaderSize + int(binary.LittleEndian.Uint32(b[at+12:]))
		if end > len(b) {
			break
		}
		payload := digest.Of(b[at+wire.HeaderSize : end])
		binary.LittleEndian.PutUint32(b[at+16:],
			crc32.Update(payload, crc32.MakeTable(crc32.Castagnoli), b[at:at+16]))
		at = end
	}
	return b
}
