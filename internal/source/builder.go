package source

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/zeebo/xxh3"
)

// Builder makes an Index from the classes and extensions, then the directories in the order of
// their classes, the root first, each with its samples in order. It is not safe for concurrent use.
// Build returns the first error.
type Builder struct {
	classes, extensions []string

	records []byte
	paths   []byte
	ends    []byte // of names
	names   []byte
	sizes   []byte // 8 bytes each
	stamps  []byte // 8 bytes each
	largest int64

	dir     Directory
	begun   bool
	digest  []byte // input of the directory's digest so far
	copied  []byte // the digest, if the directory is copied
	samples int
	base    int // offset of the directory's names
	err     error
}

// NewBuilder returns a Builder for an index with these classes and file name extensions.
func NewBuilder(classes, extensions []string) *Builder {
	return &Builder{classes: slices.Clone(classes), extensions: slices.Clone(extensions)}
}

// Grow reserves capacity for this many samples.
func (b *Builder) Grow(samples int) {
	b.sizes = slices.Grow(b.sizes, 8*samples)
	b.stamps = slices.Grow(b.stamps, 8*samples)
	b.ends = slices.Grow(b.ends, 4*samples)
	b.names = slices.Grow(b.names, 16*samples)
}

// Directory begins a directory; d.First and d.End are ignored.
func (b *Builder) Directory(d Directory) {
	b.finish()
	b.dir, b.begun = d, true
	b.paths = append(b.paths, d.Path...)
}

// Sample adds a sample to the current directory: its file name, size in bytes, modification time in
// nanoseconds since 1970, and its file's stamp.
func (b *Builder) Sample(name string, size, modified int64, stamp Stamp) {
	b.digest = appendText(b.digest, name)
	b.digest = binary.LittleEndian.AppendUint64(b.digest, uint64(size))
	b.digest = binary.LittleEndian.AppendUint64(b.digest, uint64(modified))
	b.names = append(b.names, name...)
	b.add(size, stamp)
}

// Copy begins directory d, and adds all samples of directory dir of old to it.
func (b *Builder) Copy(old *Index, dir int, d Directory) {
	b.Directory(d)
	from := old.Directory(dir)
	for id := from.First; id < from.End; id++ {
		b.names = append(b.names, old.base(dir, id)...)
		b.add(old.Size(id), old.Stamp(id))
	}
	b.copied = old.record(dir).digest()
}

func (b *Builder) add(size int64, stamp Stamp) {
	if size < 0 {
		b.fail(fmt.Errorf("sample %d in %q has a size of %d bytes", b.samples, b.dir.Path, size))
	}
	if len(b.names)-b.base > math.MaxUint32 {
		b.fail(fmt.Errorf("the file names in %q take more than 4 GiB", b.dir.Path))
	}
	b.ends = binary.LittleEndian.AppendUint32(b.ends, uint32(len(b.names)-b.base))
	b.sizes = binary.LittleEndian.AppendUint64(b.sizes, uint64(size))
	b.stamps = binary.LittleEndian.AppendUint64(b.stamps, uint64(stamp))
	b.largest = max(b.largest, size)
	if b.samples++; b.samples > MaxSamples {
		b.fail(fmt.Errorf("more than %d samples", MaxSamples))
	}
}

func (b *Builder) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// finish ends the current directory.
func (b *Builder) finish() {
	if !b.begun {
		return
	}
	class := uint32(noClass)
	if b.dir.Class >= 0 {
		class = uint32(b.dir.Class)
	}
	flags := uint32(0)
	if b.dir.Settled {
		flags = settledFlag
	}
	digest := b.copied
	if digest == nil {
		sum := xxh3.Hash128(b.digest).Bytes()
		digest = sum[:]
	}
	r := b.records
	r = binary.LittleEndian.AppendUint64(r, uint64(len(b.paths)))
	r = binary.LittleEndian.AppendUint64(r, uint64(len(b.names)))
	r = binary.LittleEndian.AppendUint32(r, uint32(b.samples))
	r = binary.LittleEndian.AppendUint32(r, class)
	r = binary.LittleEndian.AppendUint32(r, flags)
	r = binary.LittleEndian.AppendUint32(r, 0)
	r = binary.LittleEndian.AppendUint64(r, uint64(b.dir.Modified))
	r = binary.LittleEndian.AppendUint64(r, uint64(b.dir.Changed))
	b.records = append(r, digest...)
	b.base = len(b.names)
	b.digest = b.digest[:0]
	b.copied = nil
	b.begun = false
}

// Build returns the index, without the contents of its excerpts (Index.WithContents). The Builder
// must not be used afterwards.
func (b *Builder) Build() (*Index, error) {
	b.finish()
	if b.err != nil {
		return nil, fmt.Errorf("build dataset index: %w", b.err)
	}
	if len(b.records) == 0 {
		return nil, errors.New("build dataset index: no directory was added, not even the root")
	}
	return b.assemble(nil)
}

// assemble returns the index of the directories and, if there are records, of these.
func (b *Builder) assemble(records *recordSections) (*Index, error) {
	classEnds, classText := table(b.classes)
	extensionEnds, extensionText := table(b.extensions)
	if len(classText) > math.MaxUint32 || len(extensionText) > math.MaxUint32 {
		return nil, errors.New("build dataset index: the names of the classes take more than 4 GiB")
	}
	h := header{
		version: indexVersion,
		objects: uint64(b.samples), directories: uint64(len(b.records) / recordSize),
		classes: uint64(len(b.classes)), extensions: uint64(len(b.extensions)),
		classText: uint64(len(classText)), extensionText: uint64(len(extensionText)),
		pathText: uint64(len(b.paths)), nameText: uint64(len(b.names)),
	}
	if b.largest > math.MaxUint32 {
		h.flags |= sizes64
	}
	if records != nil {
		h.version, h.records = recordsVersion, &records.header
		h.flags |= records.flags
	}
	l := h.layout()
	h.total = uint64(l.total)

	image := make([]byte, 0, l.total)
	image = append(image, h.encode()...)
	for _, section := range [][]byte{
		classEnds, classText, extensionEnds, extensionText,
		b.records, b.paths, b.ends, b.names,
	} {
		image = append(image, section...)
	}
	if l.wide {
		image = append(image, b.sizes...)
	} else {
		for i := 0; i < len(b.sizes); i += 8 {
			image = append(image, b.sizes[i:i+4]...) // little-endian: the low half
		}
	}
	image = append(image, b.stamps...)
	if records != nil {
		for _, section := range records.sections {
			image = append(image, section...)
		}
	}
	image = append(image, make([]byte, l.contents.end-l.contents.first)...)
	image = binary.LittleEndian.AppendUint64(image, xxh3.Hash(image))
	x := &Index{image: image, layout: l}
	if err := x.verify(); err != nil {
		return nil, fmt.Errorf("build dataset index: %w", err)
	}
	return x, nil
}

// table is the inverse of texts.
func table(list []string) (ends, text []byte) {
	for _, s := range list {
		text = append(text, s...)
		ends = binary.LittleEndian.AppendUint32(ends, uint32(len(text)))
	}
	return ends, text
}
