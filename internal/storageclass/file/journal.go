package file

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"

	"github.com/hdmlp/hdmlp/internal/invariants"
	"github.com/hdmlp/hdmlp/internal/storageclass"
	"github.com/hdmlp/hdmlp/internal/storageclass/file/disk"
)

// The index is a header followed by records in chronological order; the last record of a sample
// applies. docs/FORMATS.md has the layout.
const (
	indexMagic   = "HDMLPIDX"
	indexVersion = 2 // 2 added places and instances
	headerSize   = 64
	recordSize   = 40
	dropped      = ^uint64(0) // length of the record of a dropped sample
)

// batch is how many records are collected before they are written.
const batch = 64

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// record is the location of a sample, or its removal.
type record struct {
	id     uint32
	offset uint64 // in the data file
	length uint64 // bytes, or dropped
	origin storageclass.Origin
}

// appendTo appends the encoded record:
//
//	u32 id, u32 digest of the sample, u64 offset, u64 length, u32 place,
//	u32 instance, u32 zero, u32 CRC-32C of the 36 bytes before
func (r record) appendTo(b []byte) []byte {
	start := len(b)
	b = binary.LittleEndian.AppendUint32(b, r.id)
	b = binary.LittleEndian.AppendUint32(b, r.origin.Digest)
	b = binary.LittleEndian.AppendUint64(b, r.offset)
	b = binary.LittleEndian.AppendUint64(b, r.length)
	b = binary.LittleEndian.AppendUint32(b, r.origin.Place)
	b = binary.LittleEndian.AppendUint32(b, r.origin.Instance)
	b = binary.LittleEndian.AppendUint32(b, 0)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
}

// decodeRecord decodes recordSize bytes; ok is false if the checksum is wrong.
func decodeRecord(b []byte) (r record, ok bool) {
	if crc32.Checksum(b[:36], castagnoli) != binary.LittleEndian.Uint32(b[36:]) {
		return record{}, false
	}
	return record{
		id:     binary.LittleEndian.Uint32(b),
		offset: binary.LittleEndian.Uint64(b[8:]),
		length: binary.LittleEndian.Uint64(b[16:]),
		origin: storageclass.Origin{
			Digest: binary.LittleEndian.Uint32(b[4:]), Place: binary.LittleEndian.Uint32(b[24:]),
			Instance: binary.LittleEndian.Uint32(b[28:]),
		},
	}, true
}

// encodeHeader encodes the header:
//
//	8 bytes magic, u32 version, u32 zero, 16 bytes fingerprint, u64 F,
//	20 bytes zero, u32 CRC-32C of the 60 bytes before
func encodeHeader(fingerprint [16]byte, samples int) []byte {
	b := make([]byte, 0, headerSize)
	b = append(b, indexMagic...)
	b = binary.LittleEndian.AppendUint32(b, indexVersion)
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = append(b, fingerprint[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(samples))
	b = append(b, make([]byte, 20)...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// decodeHeader decodes a header; ok is false if it is invalid, or of another version.
func decodeHeader(b []byte) (fingerprint [16]byte, samples int, ok bool) {
	f := binary.LittleEndian.Uint64(b[32:])
	if f > math.MaxInt32 {
		return fingerprint, 0, false
	}
	copy(fingerprint[:], b[16:32])
	return fingerprint, int(f), string(b) == string(encodeHeader(fingerprint, int(f)))
}

// journal is the index file of an open store. Records are collected in memory and written in
// batches; after a write that failed half-way they are written again at the same offset.
type journal struct {
	file disk.File

	mu struct { // guards the following
		invariants.Mutex[journal]
		end     int64 // of the file
		pending []byte
	}
}

// add adds records; with flush, they and the pending ones are written at once, with one write.
// After an error the records stay pending and are written by a later call.
func (j *journal) add(flush bool, records ...record) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range records {
		j.mu.pending = r.appendTo(j.mu.pending)
	}
	if !flush && len(j.mu.pending) < batch*recordSize {
		return nil
	}
	return j.flush()
}

// flush writes the pending records. j.mu is held.
func (j *journal) flush() error {
	if len(j.mu.pending) == 0 {
		return nil
	}
	if _, err := j.file.WriteAt(j.mu.pending, j.mu.end); err != nil {
		return fmt.Errorf("write the index: %w", err)
	}
	j.mu.end += int64(len(j.mu.pending))
	j.mu.pending = j.mu.pending[:0]
	return nil
}

// shut writes the pending records and closes the file.
func (j *journal) shut() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return errors.Join(j.flush(), j.file.Close())
}

// readIndex calls each with the records of the index in order, and returns the end of the last one:
// a torn record at the end is excluded, and records with a wrong checksum are skipped. fresh
// reports that the file is not an index of that dataset.
func readIndex(f io.Reader, fingerprint [16]byte, samples int,
	each func(record),
) (end int64, fresh bool, err error) {
	header := make([]byte, headerSize)
	if _, err := io.ReadFull(f, header); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return 0, true, nil
		}
		return 0, false, fmt.Errorf("read the index: %w", err)
	}
	if string(header) != string(encodeHeader(fingerprint, samples)) {
		return 0, true, nil
	}
	end = headerSize
	buffer := make([]byte, 32768*recordSize)
	for {
		n, err := io.ReadFull(f, buffer)
		for b := buffer[:n]; len(b) >= recordSize; b = b[recordSize:] {
			end += recordSize
			if r, ok := decodeRecord(b); ok {
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
