package file

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"

	"github.com/hdmlp/hdmlp/internal/store"
)

const (
	indexMagic   = "HDMLPIDX"
	indexVersion = 3 // 2 added directories and instances, 3 the dataset to the checksums of records

	HeaderSize = 64         // bytes of the header
	RecordSize = 40         // and of a record
	Dropped    = ^uint64(0) // Length of the record of a dropped sample
	kindShift  = 56         // where the kind begins in the encoded length
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Record is the location of a sample, or its removal.
type Record struct {
	ID     uint32
	Offset uint64 // in the data file
	Length uint64 // bytes, or Dropped
	Origin store.Origin
	// Kind and Sum are the kind of the form that the copy is in, and its digest; 0: it is as read.
	Kind uint8
	Sum  uint32
}

// AppendTo appends the encoded record of a dataset's index:
//
//	u32 id, u32 digest of the sample, u64 offset, u64 length, u32 place,
//	u32 instance, u32 digest of the form, u32 CRC-32C of the fingerprint and the 36 bytes before
//
// The upper 8 bits of the length are the form's kind. Versions of hdmlp without forms find that the
// length is not the sample's, and do not use the copy.
//
// The fingerprint is in the checksum because the file system may give the blocks of a removed store
// to a new one, and after a power failure show the former contents in both its files. A record of
// another dataset would then make that one's sample a sample of this one.
func (r Record) AppendTo(b []byte, fingerprint [16]byte) []byte {
	start := len(b)
	b = binary.LittleEndian.AppendUint32(b, r.ID)
	b = binary.LittleEndian.AppendUint32(b, r.Origin.Digest)
	b = binary.LittleEndian.AppendUint64(b, r.Offset)
	b = binary.LittleEndian.AppendUint64(b, r.Length|uint64(r.Kind)<<kindShift)
	b = binary.LittleEndian.AppendUint32(b, r.Origin.Directory)
	b = binary.LittleEndian.AppendUint32(b, r.Origin.Instance)
	b = binary.LittleEndian.AppendUint32(b, r.Sum)
	return binary.LittleEndian.AppendUint32(b, checksum(b[start:], fingerprint))
}

// checksum returns the checksum of a record.
func checksum(record []byte, fingerprint [16]byte) uint32 {
	return crc32.Update(crc32.Checksum(fingerprint[:], castagnoli), castagnoli, record)
}

// decodeRecord decodes RecordSize bytes; ok is false if the checksum is wrong.
func decodeRecord(b []byte, fingerprint [16]byte) (r Record, ok bool) {
	if checksum(b[:36], fingerprint) != binary.LittleEndian.Uint32(b[36:]) {
		return Record{}, false
	}
	r = Record{
		ID:     binary.LittleEndian.Uint32(b),
		Offset: binary.LittleEndian.Uint64(b[8:]),
		Length: binary.LittleEndian.Uint64(b[16:]),
		Origin: store.Origin{
			Digest: binary.LittleEndian.Uint32(b[4:]), Directory: binary.LittleEndian.Uint32(b[24:]),
			Instance: binary.LittleEndian.Uint32(b[28:]),
		},
	}
	if r.Length != Dropped {
		r.Kind, r.Sum = uint8(r.Length>>kindShift), binary.LittleEndian.Uint32(b[32:])
		r.Length &= 1<<kindShift - 1
	}
	return r, true
}

// Header encodes the header:
//
//	8 bytes magic, u32 version, u32 zero, 16 bytes fingerprint, u64 F,
//	20 bytes zero, u32 CRC-32C of the 60 bytes before
func Header(fingerprint [16]byte, samples int) []byte {
	b := make([]byte, 0, HeaderSize)
	b = append(b, indexMagic...)
	b = binary.LittleEndian.AppendUint32(b, indexVersion)
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = append(b, fingerprint[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(samples))
	b = append(b, make([]byte, 20)...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// ParseHeader decodes a header; ok is false if it is invalid, or of another version.
func ParseHeader(b []byte) (fingerprint [16]byte, samples int, ok bool) {
	f := binary.LittleEndian.Uint64(b[32:])
	if f > math.MaxInt32 {
		return fingerprint, 0, false
	}
	copy(fingerprint[:], b[16:32])
	return fingerprint, int(f), string(b) == string(Header(fingerprint, int(f)))
}

// Read calls each with the records of the index in order, and returns the end of the last one:
// a torn record at the end is excluded, and records with a wrong checksum are skipped. fresh
// reports that the file is not an index of that dataset.
func Read(f io.Reader, fingerprint [16]byte, samples int,
	each func(Record),
) (end int64, fresh bool, err error) {
	header := make([]byte, HeaderSize)
	if _, err := io.ReadFull(f, header); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return 0, true, nil
		}
		return 0, false, fmt.Errorf("read the index: %w", err)
	}
	if string(header) != string(Header(fingerprint, samples)) {
		return 0, true, nil
	}
	end = HeaderSize
	buffer := make([]byte, 1024*RecordSize)
	for {
		n, err := io.ReadFull(f, buffer)
		for b := buffer[:n]; len(b) >= RecordSize; b = b[RecordSize:] {
			end += RecordSize
			if r, ok := decodeRecord(b, fingerprint); ok {
				each(r)
			}
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return end, false, nil
		case err != nil:
			return 0, false, fmt.Errorf("read the index: %w", err)
		}
	}
}
