package dataset

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/zeebo/xxh3"
)

// An index file comes with the dataset, so its header may claim anything. Decoding takes memory for
// bytes that have been read, and not for bytes that are claimed: the image grows in steps, each
// part is checked as soon as it is complete, and what the whole would take is compared with a limit
// before the first part is read.

// firstStep is how many bytes of an index are read before anything of it has
// been checked but the header.
const firstStep = 1 << 20

// growth is how many times the bytes read so far may be taken for the next step.
const growth = 4

// MemoryError refuses an index that would take more memory than it may. It is
// an ErrIndex.
type MemoryError struct{ Need, Limit int64 }

func (e *MemoryError) Error() string {
	return fmt.Sprintf("%v: it takes %d bytes of memory, %d are allowed", ErrIndex, e.Need, e.Limit)
}

func (e *MemoryError) Unwrap() error { return ErrIndex }

// Decode is DecodeWithin without a limit.
func Decode(r io.Reader, size int64) (*Index, error) { return DecodeWithin(r, size, math.MaxInt64) }

// DecodeWithin reads an index of size bytes from r, which may take at most limit
// bytes of memory. Memory grows with the bytes that r really gives and that
// are right so far; what is returned has been checked as a whole. An error that
// is ErrIndex means that the file cannot be used.
func DecodeWithin(r io.Reader, size, limit int64) (*Index, error) {
	head := make([]byte, headerSize)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, readError(err)
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

// readTo reads the image up to end, in steps.
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

// stage is a part of the image that can be checked when it, and what lies before
// it, has been read.
type stage struct {
	end    int
	verify func() error
}

// stages are the parts in the order in which they lie.
func (x *Index) stages() []stage {
	l := &x.layout
	return []stage{
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
}

// Memory that an index takes beside its image, in bytes, about.
const (
	perText = 16 + 4 // a string's header; where a class ends
	// where its samples end; its entries in the maps of a scan that begins with the index
	perDirectory = 4 + 200
)

// memory is about how many bytes the index takes while it is decoded and used:
// the image, a part of it once more while it grows, and the tables.
func (l *layout) memory() int64 {
	text := (l.classText.end - l.classText.first) + (l.extensionText.end - l.extensionText.first)
	return int64(l.total) + int64(l.total)/growth + int64(text) +
		perText*int64(l.classes+l.extensions) + perDirectory*int64(l.directories)
}
