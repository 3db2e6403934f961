package dataset

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"iter"
	"sort"
	"time"
)

// MaxSamples is the largest number of samples of one dataset: a sample's ID
// takes 32 bits wherever IDs are exchanged.
const MaxSamples = 1<<32 - 2

// Index says what the samples of a dataset are. It is immutable and safe for
// concurrent use.
//
// An Index is its own file: one block of memory, laid out as docs/FORMATS.md
// says ("The dataset index"), in which the methods below look things up. There
// is no pointer and no object per sample, so that the garbage collector never
// sees a dataset's size, and reading an index back is one big read.
//
// Samples are numbered from 0 in the order of their directories, and the
// directories of a class lie together: both a sample's directory and its class
// are found by binary search in tables that are short.
type Index struct {
	image  []byte // the whole file, checksum included
	layout layout // where in image the sections lie

	classes    []string
	extensions []string
	dirSamples []uint32 // per directory: the first sample behind it
	classEnds  []uint32 // per class: the first sample behind it

	bytes       int64
	largest     int64
	listing     [16]byte // hash of all but contents and stamps
	fingerprint [16]byte // hash of listing and contents
}

// Directory is one directory of the source, as it was when it was listed.
type Directory struct {
	Path  string // below the root, with slashes; "" is the root
	Class int    // the class of the samples in it; -1 for the root
	// Modified and Changed are its mtime and ctime, in nanoseconds since 1970.
	Modified, Changed int64
	// Settled: these times are old enough for any later change of the
	// directory to change them too.
	Settled bool
	// Samples in it, itself only: IDs from First to End-1.
	First, End int
}

// Len is F, the number of samples.
func (x *Index) Len() int { return x.layout.samples }

// Bytes is S, the bytes of all samples.
func (x *Index) Bytes() int64 { return x.bytes }

// MaxSize is the size of the largest sample, in bytes; 0 if there is none.
func (x *Index) MaxSize() int64 { return x.largest }

// Classes are the names of the classes; a sample's label is the place of its
// class in this list. The caller must not change it.
func (x *Index) Classes() []string { return x.classes }

// Extensions are the endings of file names, in lower case, by which the samples
// were picked; nil where the kind of source knows none. The caller must not
// change it.
func (x *Index) Extensions() []string { return x.extensions }

// Fingerprint is the dataset's version: it covers the listing (the names of the classes in
// their order and, for every sample in its order, class, path below the root, size and
// modification time) and the contents of the files that Excerpts lists. It covers neither
// where the root lies nor the bytes of other files. So it is the same on every
// start and every node for as long as the folder is unchanged, and a copy has the same one
// if it kept the times of the files.
func (x *Index) Fingerprint() [16]byte { return x.fingerprint }

// Listing is the hash of the listing alone.
func (x *Index) Listing() [16]byte { return x.listing }

// Label is the number of the class of sample id. It panics if there is no such
// sample, as indexing a slice does.
func (x *Index) Label(id int) int {
	x.check(id)
	return sort.Search(len(x.classEnds), func(i int) bool { return x.classEnds[i] > uint32(id) })
}

// Size is the size of sample id in bytes. It panics if there is no such sample.
func (x *Index) Size(id int) int64 {
	x.check(id)
	if x.layout.wide {
		return int64(binary.LittleEndian.Uint64(x.layout.sizes.of(x.image)[8*id:]))
	}
	return int64(binary.LittleEndian.Uint32(x.layout.sizes.of(x.image)[4*id:]))
}

// Stamp is the stamp of sample id's file when it was listed. It panics if there is no such
// sample.
func (x *Index) Stamp(id int) Stamp {
	x.check(id)
	return Stamp(binary.LittleEndian.Uint64(x.layout.stamps.of(x.image)[8*id:]))
}

// Name is the path of sample id below the root, with slashes. It may be any
// bytes but NUL: file names need not be UTF-8. It panics if there is no such
// sample.
func (x *Index) Name(id int) string {
	var buf [256]byte
	return string(x.AppendName(buf[:0], id))
}

// AppendName appends Name(id) to dst, and allocates nothing if dst has room.
func (x *Index) AppendName(dst []byte, id int) []byte {
	x.check(id)
	dir := sort.Search(len(x.dirSamples), func(i int) bool { return x.dirSamples[i] > uint32(id) })
	if path := x.path(dir); len(path) > 0 {
		dst = append(append(dst, path...), '/')
	}
	return append(dst, x.base(dir, id)...)
}

// ClassSizes are the numbers of samples per class.
func (x *Index) ClassSizes() []int {
	sizes := make([]int, len(x.classEnds))
	first := uint32(0)
	for i, end := range x.classEnds {
		sizes[i] = int(end - first)
		first = end
	}
	return sizes
}

// Directories goes through the directories in the order of their samples, the
// root first, those without samples included.
func (x *Index) Directories() iter.Seq2[int, Directory] {
	return func(yield func(int, Directory) bool) {
		for i := range x.layout.directories {
			if !yield(i, x.Directory(i)) {
				return
			}
		}
	}
}

// Equal reports whether two indexes are the same in all that they hold, times of
// directories included.
func (x *Index) Equal(other *Index) bool { return bytes.Equal(x.image, other.image) }

// String describes the index in a few words.
func (x *Index) String() string {
	return fmt.Sprintf("%d samples in %d classes, %d bytes, fingerprint %x",
		x.Len(), len(x.classes), x.bytes, x.fingerprint)
}

func (x *Index) check(id int) {
	if uint(id) >= uint(x.layout.samples) {
		panic(fmt.Sprintf("dataset: sample %d of %d", id, x.layout.samples))
	}
}

// path is the path of directory dir below the root.
func (x *Index) path(dir int) []byte {
	first := uint64(0)
	if dir > 0 {
		first = x.record(dir - 1).pathEnd()
	}
	return x.layout.paths.of(x.image)[first:x.record(dir).pathEnd()]
}

// base is the name of sample id, which lies in directory dir, within it.
func (x *Index) base(dir, id int) []byte {
	base := uint64(0)
	first := 0
	if dir > 0 {
		base = x.record(dir - 1).namesEnd()
		first = int(x.dirSamples[dir-1])
	}
	ends := x.layout.nameEnds.of(x.image)
	begin := uint64(0)
	if id > first {
		begin = uint64(binary.LittleEndian.Uint32(ends[4*(id-1):]))
	}
	end := uint64(binary.LittleEndian.Uint32(ends[4*id:]))
	return x.layout.names.of(x.image)[base+begin : base+end]
}

func (x *Index) record(dir int) record {
	return record(x.layout.records.of(x.image)[dir*recordSize : (dir+1)*recordSize])
}

// Directory is the directory of this number, as Directories counts them.
func (x *Index) Directory(dir int) Directory {
	r := x.record(dir)
	d := Directory{
		Path: string(x.path(dir)), Class: r.class(),
		Modified: r.modified(), Changed: r.changed(), Settled: r.settled(),
		End: int(x.dirSamples[dir]),
	}
	if dir > 0 {
		d.First = int(x.dirSamples[dir-1])
	}
	return d
}

// Settled reports whether times of a directory that was listed at now can be
// trusted to change with the directory: not if it changed shortly before (its
// clock may tick as rarely as every two seconds), nor if a tool that makes
// images set them all to the beginning of time.
func Settled(modified, changed int64, now time.Time) bool {
	const granularity, beginning = 2 * time.Second, int64(time.Second)
	newest := max(modified, changed)
	return newest > beginning && newest < now.Add(-granularity).UnixNano()
}
