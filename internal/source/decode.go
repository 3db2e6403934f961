package source

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/zeebo/xxh3"
)

// An index file comes with the dataset, so its header is untrusted. Decoding allocates memory for
// bytes that have been read, not for bytes that the header claims: the image grows in steps, each
// section is checked as soon as it is complete, and the memory that the whole index would need is
// checked against a limit before the first section is read.

// firstStep is how many bytes of an index are read when only its header has been checked.
const firstStep = 1 << 20

// growth bounds the next step to this many times the bytes read so far.
const growth = 4

// MemoryError is the error of an index that needs more memory than the limit. It wraps ErrIndex.
type MemoryError struct{ Need, Limit int64 }

func (e *MemoryError) Error() string {
	return fmt.Sprintf("%v: it needs %d bytes of memory, and %d are allowed", ErrIndex, e.Need,
		e.Limit)
}

func (e *MemoryError) Unwrap() error { return ErrIndex }

// Decode is DecodeWithin without a limit.
func Decode(r io.Reader, size int64) (*Index, error) { return DecodeWithin(r, size, math.MaxInt64) }

// DecodeWithin reads an index of size bytes from r; it may use at most limit bytes of memory.
// Memory grows only with bytes that were read and found valid; the index that is returned has been
// checked as a whole. An error that wraps ErrIndex means that the file cannot be used.
func DecodeWithin(r io.Reader, size, limit int64) (*Index, error) {
	head := make([]byte, headerSize)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, readError(err)
	}
	if more := headerLength(head) - len(head); more > 0 {
		head = append(head, make([]byte, more)...)
		if _, err := io.ReadFull(r, head[headerSize:]); err != nil {
			return nil, readError(err)
		}
	}
	l, err := parseHeader(head, size)
	if err != nil {
		return nil, err
	}
	if need := l.memory(); need > limit {
		return nil, &MemoryError{Need: need, Limit: limit}
	}
	x := &Index{image: head, layout: l}
	for _, s := range x.stages() {
		if err := x.readTo(r, s.end); err != nil {
			return nil, err
		}
		if err := s.verify(); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrIndex, err)
		}
	}
	if err := x.readTo(r, l.total); err != nil {
		return nil, err
	}
	body := x.image[:l.total-checksumSize]
	if xxh3.Hash(body) != binary.LittleEndian.Uint64(x.image[len(body):]) {
		return nil, fmt.Errorf("%w: its checksum is wrong", ErrIndex)
	}
	x.identify()
	return x, nil
}

// readTo reads the image up to offset end, in steps.
func (x *Index) readTo(r io.Reader, end int) error {
	for len(x.image) < end {
		have := len(x.image)
		if have == cap(x.image) {
			grown := make([]byte, have, min(x.layout.total, max(growth*have, firstStep)))
			copy(grown, x.image)
			x.image = grown
		}
		x.image = x.image[:min(end, cap(x.image))]
		if _, err := io.ReadFull(r, x.image[have:]); err != nil {
			return readError(err)
		}
	}
	return nil
}

// stage is a part of the image that can be checked once the image has been read up to its end.
type stage struct {
	end    int
	verify func() error
}

// stages returns the parts in the order of the image.
func (x *Index) stages() []stage {
	l := &x.layout
	stages := []stage{
		{l.classText.end, func() (err error) {
			if x.classes, err = texts(l.classEnds.of(x.image),
				l.classText.of(x.image)); err != nil {
				return fmt.Errorf("classes: %w", err)
			}
			return nil
		}},
		{l.extensionText.end, func() (err error) {
			if x.extensions, err = texts(l.extensionEnds.of(x.image),
				l.extensionText.of(x.image)); err != nil {
				return fmt.Errorf("extensions: %w", err)
			}
			return nil
		}},
		{l.paths.end, x.verifyDirectories},
		{l.names.end, x.verifyNames},
		{l.sizes.end, x.sumSizes},
	}
	return append(stages, x.recordStages()...)
}

// Approximate memory that an index takes in addition to its image, in bytes.
const (
	perText = 16 + 4 // a string header; the end of a class
	// the end of its samples; its entries in the maps of a scan that starts from the index
	perDirectory = 4 + 200
)

// memory returns the approximate number of bytes that the index takes while it is decoded and used:
// the image, a second copy of part of it while it grows, and the tables.
func (l *layout) memory() int64 {
	text := (l.classText.end - l.classText.first) + (l.extensionText.end - l.extensionText.first)
	texts := l.classes + l.extensions
	if r := l.records; r != nil {
		text += (r.fieldText.end - r.fieldText.first) + (r.columnText.end - r.columnText.first)
		texts += r.fields + r.columns
	}
	return int64(l.total) + int64(l.total)/growth + int64(text) +
		perText*int64(texts) + perDirectory*int64(l.directories)
}
