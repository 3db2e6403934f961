package source

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/zeebo/xxh3"
)

// The index file. docs/FORMATS.md, "The dataset index", describes it byte by byte.
const (
	indexMagic = "HDMLPIDX"
	// Versions: 1, the first; 2, with stamps and contents, whose samples are its objects; 3, with
	// records, whose samples are ranges of its objects.
	indexVersion   = 2
	recordsVersion = 3

	headerSize   = 96
	recordSize   = 64
	checksumSize = 8

	// sizes64 is set if sizes take 8 bytes each instead of 4.
	sizes64 = 1 << 0
	// settledFlag is Directory.Settled.
	settledFlag = 1 << 0
	// noClass is the class of the root.
	noClass = math.MaxUint32

	// maxText bounds each text section of an index.
	maxText = 1 << 40
	// maxTable bounds the number of classes, extensions and directories.
	maxTable = math.MaxInt32
)

// ErrIndex marks a file that cannot be used as an index: it is not one, has another version, or is
// damaged. The dataset has to be scanned again.
var ErrIndex = errors.New("not a usable dataset index")

// span is a range of the image.
type span struct{ first, end int }

func (s span) of(image []byte) []byte { return image[s.first:s.end:s.end] }

// layout holds the positions of an image's sections.
type layout struct {
	objects, directories, classes, extensions int
	wide                                      bool // sizes take 8 bytes

	classEnds, classText         span
	extensionEnds, extensionText span
	directoryTable, paths        span
	nameEnds, names              span
	sizes, stamps                span
	records                      *recordLayout // nil: each object is a sample
	contents                     span
	total                        int // including the checksum
}

// samples returns the number of samples.
func (l *layout) samples() int {
	if l.records != nil {
		return l.records.samples
	}
	return l.objects
}

// header is the decoded beginning of the file.
type header struct {
	version, flags                               uint32
	total                                        uint64
	objects, directories, classes, extensions    uint64
	classText, extensionText, pathText, nameText uint64
	records                                      *recordHeader // of version 3
}

func (h *header) encode() []byte {
	b := make([]byte, 0, headerSize+recordHeaderSize)
	b = append(b, indexMagic...)
	b = binary.LittleEndian.AppendUint32(b, h.version)
	b = binary.LittleEndian.AppendUint32(b, h.flags)
	for _, v := range []uint64{
		h.total,
		h.objects, h.directories, h.classes, h.extensions,
		h.classText, h.extensionText, h.pathText, h.nameText,
		0,
	} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	if h.records != nil {
		b = h.records.encode(b)
	}
	return b
}

// headerLength returns the length of the header that begins with b, of at least 16 bytes.
func headerLength(b []byte) int {
	if binary.LittleEndian.Uint32(b[8:]) == recordsVersion {
		return headerSize + recordHeaderSize
	}
	return headerSize
}

// parseHeader reads and checks the header of a file of size bytes and returns its layout. It
// allocates nothing for the sections.
func parseHeader(b []byte, size int64) (layout, error) {
	bad := func(format string, args ...any) (layout, error) {
		return layout{}, fmt.Errorf("%w: %s", ErrIndex, fmt.Sprintf(format, args...))
	}
	if len(b) < headerSize || string(b[:8]) != indexMagic {
		return bad("it does not begin with the magic number")
	}
	h := header{version: binary.LittleEndian.Uint32(b[8:])}
	if h.version != indexVersion && h.version != recordsVersion {
		return bad("it has version %d, and this program reads versions %d and %d", h.version,
			indexVersion, recordsVersion)
	}
	h.flags = binary.LittleEndian.Uint32(b[12:])
	var reserved uint64
	for i, p := range []*uint64{
		&h.total,
		&h.objects, &h.directories, &h.classes, &h.extensions,
		&h.classText, &h.extensionText, &h.pathText, &h.nameText,
		&reserved,
	} {
		*p = binary.LittleEndian.Uint64(b[16+8*i:])
	}
	known := uint32(sizes64)
	if h.version == recordsVersion {
		known |= recordFlags
		if len(b) < headerSize+recordHeaderSize {
			return bad("its header is cut off")
		}
		var err error
		if h.records, err = parseRecordHeader(b[headerSize:]); err != nil {
			return bad("%v", err)
		}
	}
	switch {
	case h.flags&^known != 0 || reserved != 0:
		return bad("unknown flags")
	case h.objects > MaxSamples:
		return bad("%d samples", h.objects)
	case h.directories < 1 || h.directories > maxTable || h.classes > maxTable ||
		h.extensions > maxTable:
		return bad("%d directories, %d classes, %d extensions", h.directories, h.classes,
			h.extensions)
	case max(h.classText, h.extensionText, h.pathText, h.nameText) > maxText:
		return bad("too much text")
	case h.classText < h.classes || h.extensionText < h.extensions ||
		h.pathText < h.directories-1 || h.nameText < h.objects:
		// so that a header cannot claim entries that take almost no bytes
		return bad("it has more names than bytes of text")
	case size < 0 || h.total != uint64(size):
		return bad("%d bytes, not %d", size, h.total)
	}
	l := h.layout()
	if uint64(l.total) != h.total {
		return bad("%d bytes, but its sections add up to %d", h.total, l.total)
	}
	return l, nil
}

// layout computes the positions of the sections. It cannot overflow: the header is within limits.
func (h *header) layout() layout {
	l := layout{
		objects: int(h.objects), directories: int(h.directories),
		classes: int(h.classes), extensions: int(h.extensions),
		wide: h.flags&sizes64 != 0,
	}
	at := headerSize
	if h.records != nil {
		at += recordHeaderSize
	}
	next := func(n int) span {
		s := span{at, at + n}
		at += n
		return s
	}
	l.classEnds, l.classText = next(4*l.classes), next(int(h.classText))
	l.extensionEnds, l.extensionText = next(4*l.extensions), next(int(h.extensionText))
	l.directoryTable, l.paths = next(recordSize*l.directories), next(int(h.pathText))
	l.nameEnds, l.names = next(4*l.objects), next(int(h.nameText))
	l.sizes = next(width(l.wide) * l.objects)
	l.stamps = next(8 * l.objects)
	if h.records != nil {
		l.records = h.records.layout(h.flags, l.objects, next)
	}
	l.contents = next(16 * l.excerpts())
	next(checksumSize)
	l.total = at
	return l
}

// width returns the number of bytes of a size.
func width(wide bool) int {
	if wide {
		return 8
	}
	return 4
}

// excerpts returns the number of samples whose contents the version covers: none where the objects'
// tags do.
func (l *layout) excerpts() int {
	if l.records != nil && l.records.tagged {
		return 0
	}
	return min(l.samples(), excerptFiles)
}

// record is the entry of one directory.
type record []byte

func (r record) pathEnd() uint64    { return binary.LittleEndian.Uint64(r[0:]) }
func (r record) namesEnd() uint64   { return binary.LittleEndian.Uint64(r[8:]) }
func (r record) samplesEnd() uint32 { return binary.LittleEndian.Uint32(r[16:]) }
func (r record) rawClass() uint32   { return binary.LittleEndian.Uint32(r[20:]) }
func (r record) flags() uint32      { return binary.LittleEndian.Uint32(r[24:]) }
func (r record) settled() bool      { return r.flags()&settledFlag != 0 }
func (r record) modified() int64    { return int64(binary.LittleEndian.Uint64(r[32:])) }
func (r record) changed() int64     { return int64(binary.LittleEndian.Uint64(r[40:])) }
func (r record) digest() []byte     { return r[48:64] }

func (r record) class() int {
	if c := r.rawClass(); c != noClass {
		return int(c)
	}
	return -1
}

// Encode writes the index to w in one call. The bytes depend on the index alone.
func (x *Index) Encode(w io.Writer) error {
	if _, err := w.Write(x.image); err != nil {
		return fmt.Errorf("write dataset index: %w", err)
	}
	return nil
}

// Encoded returns what Encode writes. The caller must not change it.
func (x *Index) Encoded() []byte { return x.image }

// EncodedSize returns the number of bytes that Encode writes, which is about the memory that the
// index takes.
func (x *Index) EncodedSize() int64 { return int64(len(x.image)) }

func readError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it is truncated", ErrIndex)
	}
	return fmt.Errorf("read dataset index: %w", err)
}

// verify checks everything that the methods of Index rely on, and fills the tables.
func (x *Index) verify() error {
	for _, s := range x.stages() {
		if err := s.verify(); err != nil {
			return err
		}
	}
	x.identify()
	return nil
}

// identify computes the listing's hash and the fingerprint.
func (x *Index) identify() {
	x.listing = x.hash()
	x.fingerprint = x.version()
}

// texts splits text into strings that end at the given offsets.
func texts(ends, text []byte) ([]string, error) {
	if len(ends) == 0 && len(text) == 0 {
		return nil, nil
	}
	all := string(text)
	list := make([]string, len(ends)/4)
	first := uint32(0)
	for i := range list {
		end := binary.LittleEndian.Uint32(ends[4*i:])
		if end <= first || uint64(end) > uint64(len(all)) {
			return nil, fmt.Errorf("text %d has an invalid offset", i)
		}
		list[i] = all[first:end]
		first = end
	}
	if int(first) != len(all) {
		return nil, errors.New("there are bytes after the last text")
	}
	return list, nil
}

func (x *Index) verifyDirectories() error {
	x.dirSamples = make([]uint32, x.layout.directories)
	x.classEnds = make([]uint32, x.layout.classes)
	paths, names := uint64(x.layout.paths.end-x.layout.paths.first),
		uint64(x.layout.names.end-x.layout.names.first)
	var pathEnd, namesEnd uint64
	var samplesEnd uint32
	class := -1
	for i := range x.dirSamples {
		r := x.record(i)
		switch {
		case r.pathEnd() < pathEnd || r.pathEnd() > paths,
			r.namesEnd() < namesEnd || r.namesEnd() > names,
			r.samplesEnd() < samplesEnd || uint64(r.samplesEnd()) > uint64(x.layout.objects):
			return fmt.Errorf("directory %d has an invalid offset", i)
		case i == 0 && (r.class() != -1 || r.pathEnd() != 0),
			i == 0 && x.layout.records == nil && (r.samplesEnd() != 0 || r.namesEnd() != 0):
			return errors.New("the first directory is not the root")
		case i > 0 && x.layout.records == nil &&
			(uint64(r.rawClass()) >= uint64(x.layout.classes) || r.class() < class),
			x.layout.records != nil && r.class() != -1:
			return fmt.Errorf("directory %d has the invalid class %d", i, r.class())
		case r.flags()&^settledFlag != 0 || binary.LittleEndian.Uint32(r[28:]) != 0:
			return fmt.Errorf("directory %d has unknown flags", i)
		}
		pathEnd = r.pathEnd()
		namesEnd = r.namesEnd()
		samplesEnd = r.samplesEnd()
		if path := x.path(i); i > 0 && !validPath(string(path)) {
			return fmt.Errorf("directory %d has the path %q", i, path)
		}
		for c := class + 1; c < r.class(); c++ { // classes without directories
			x.classEnds[c] = x.dirSamples[i-1]
		}
		class = r.class()
		x.dirSamples[i] = samplesEnd
		if class >= 0 {
			x.classEnds[class] = samplesEnd
		}
	}
	for c := class + 1; c < len(x.classEnds); c++ {
		x.classEnds[c] = samplesEnd
	}
	if pathEnd != paths || namesEnd != names || uint64(samplesEnd) != uint64(x.layout.objects) {
		return errors.New("there is data after the last directory")
	}
	return nil
}

// validPath reports whether path stays below the root.
func validPath(path string) bool {
	for part := range strings.SplitSeq(path, "/") {
		if part == "" || part == "." || part == ".." {
			return false
		}
	}
	return strings.IndexByte(path, 0) < 0
}

func (x *Index) verifyNames() error {
	names := x.layout.names.of(x.image)
	if bytes.IndexByte(names, '/') >= 0 || bytes.IndexByte(names, 0) >= 0 {
		return errors.New("a sample's name is not a file name")
	}
	ends := x.layout.nameEnds.of(x.image)
	id := 0
	var base uint64
	for dir := range x.layout.directories {
		length := x.record(dir).namesEnd() - base
		last := uint32(0)
		for ; id < int(x.dirSamples[dir]); id++ {
			end := binary.LittleEndian.Uint32(ends[4*id:])
			if end <= last || uint64(end) > length {
				return fmt.Errorf("the name of sample %d has an invalid offset", id)
			}
			if n := names[base+uint64(last) : base+uint64(end)]; n[0] == '.' &&
				(len(n) == 1 || len(n) == 2 && n[1] == '.') {
				return fmt.Errorf("sample %d is named %q", id, n)
			}
			last = end
		}
		if uint64(last) != length {
			return fmt.Errorf("there are bytes after the last name in directory %d", dir)
		}
		base += length
	}
	return nil
}

// sumSizes adds up the sizes of the objects.
func (x *Index) sumSizes() error {
	var sum, largest uint64
	sizes := x.layout.sizes.of(x.image)
	if !x.layout.wide {
		for i := 0; i+4 <= len(sizes); i += 4 {
			size := uint64(binary.LittleEndian.Uint32(sizes[i:])) // 2^32 of these cannot overflow
			sum += size
			largest = max(largest, size)
		}
	} else {
		for i := 0; i+8 <= len(sizes); i += 8 {
			size := binary.LittleEndian.Uint64(sizes[i:])
			if size > math.MaxInt64 || sum > math.MaxInt64-size {
				return errors.New("the sizes add up to more than 2^63 bytes")
			}
			sum += size
			largest = max(largest, size)
		}
	}
	if sum > math.MaxInt64 {
		return errors.New("the sizes add up to more than 2^63 bytes")
	}
	x.bytes, x.largest = int64(sum), int64(largest)
	return nil
}

// hash hashes the listing: the names of the classes in their order and, for every sample in its
// order, class, path below the root, size and modification time. It covers neither the root's path
// nor stamps, directories without samples, and the times of directories.
func (x *Index) hash() [16]byte {
	b := make([]byte, 0, 4096)
	b = append(b, "hdmlp dataset 1\n"...)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(x.classes)))
	for _, name := range x.classes {
		b = appendText(b, name)
	}
	h := xxh3.New()
	first := uint32(0)
	for i, end := range x.dirSamples {
		if end > first {
			r := x.record(i)
			b = binary.LittleEndian.AppendUint32(b, r.rawClass())
			b = binary.LittleEndian.AppendUint32(b, end-first)
			b = appendText(b, x.path(i))
			b = append(b, r.digest()...)
		}
		first = end
		if len(b) > 1<<16 {
			_, _ = h.Write(b) // hash.Hash never returns an error
			b = b[:0]
		}
	}
	_, _ = h.Write(b)
	sum := h.Sum128().Bytes()
	if x.layout.records != nil {
		return x.hashRecords(sum)
	}
	return sum
}

func appendText[T string | []byte](b []byte, s T) []byte {
	return append(binary.LittleEndian.AppendUint32(b, uint32(len(s))), s...)
}
