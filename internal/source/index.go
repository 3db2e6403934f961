package source

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"iter"
	"slices"
	"sort"
	"time"
)

// MaxSamples is the largest number of samples of one dataset: sample IDs are exchanged as 32-bit
// numbers.
const MaxSamples = 1<<32 - 2

// Index describes the samples of a dataset. It is immutable and safe for concurrent use.
//
// An Index is held in memory as it is stored on disk: one block, in the layout of docs/FORMATS.md
// ("The dataset index"), which the methods below search. It has no pointer or object per sample, so
// the cost of garbage collection does not grow with the dataset, and loading an index is one large
// read.
//
// Samples are numbered from 0 in the order of their directories, and the directories of a class are
// adjacent: both a sample's directory and its class are found by binary search in short tables.
type Index struct {
	image  []byte // the whole file, checksum included
	layout layout // where the sections of image are

	classes    []string
	extensions []string
	dirSamples []uint32 // per directory: the first sample after it
	classEnds  []uint32 // per class: the first sample after it
	fieldNames []string
	tables     *recordTables // nil: each object is a sample

	bytes       int64
	largest     int64
	listing     [16]byte // hash of all but contents and stamps
	fingerprint [16]byte // hash of listing and contents
}

// Directory is one directory of the source, as of when it was listed.
type Directory struct {
	Path  string // relative to the root, with slashes; "" is the root
	Class int    // the class of the samples in it; -1 for the root
	// Modified and Changed are its mtime and ctime, in nanoseconds since 1970.
	Modified, Changed int64
	// Settled is true if these times are old enough that any later change of the directory changes
	// them too.
	Settled bool
	// First and End delimit the samples in the directory itself: IDs First to End-1.
	First, End int
}

// Len returns the number of samples (F in the papers).
func (x *Index) Len() int { return x.layout.samples() }

// Bytes returns the size of all samples together, in bytes (S in the papers).
func (x *Index) Bytes() int64 { return x.bytes }

// MaxSize returns the size of the largest sample in bytes, or 0 if there is none.
func (x *Index) MaxSize() int64 { return x.largest }

// Classes returns the names of the classes; a sample's label is the position of its class in this
// list. The caller must not change it.
func (x *Index) Classes() []string { return x.classes }

// Extensions returns the file name extensions, in lower case, that select the samples; nil if the
// kind of source has none. The caller must not change it.
func (x *Index) Extensions() []string { return x.extensions }

// Fingerprint returns the dataset's version. It covers the listing (the names of the classes in
// their order and, for every sample in its order, class, path below the root, size and modification
// time) and the contents of the files that Excerpts lists. It covers neither the root's path nor
// the bytes of other files. So it is the same on every start and every node as long as the folder
// is unchanged, and a copy of the folder has the same one if it preserves file times.
func (x *Index) Fingerprint() [16]byte { return x.fingerprint }

// Listing returns the hash of the listing alone.
func (x *Index) Listing() [16]byte { return x.listing }

// Labelled reports whether the samples have classes.
func (x *Index) Labelled() bool {
	return x.layout.records == nil || x.layout.records.labelled
}

// Label returns the number of the class of sample id. It panics if there is no such sample, as
// indexing a slice does.
func (x *Index) Label(id int) int {
	x.check(id)
	if r := x.layout.records; r != nil {
		if !r.labelled {
			return 0
		}
		return int(binary.LittleEndian.Uint32(r.labels.of(x.image)[4*id:]))
	}
	return sort.Search(len(x.classEnds), func(i int) bool { return x.classEnds[i] > uint32(id) })
}

// Size returns the size of sample id in bytes. It panics if there is no such sample.
func (x *Index) Size(id int) int64 {
	x.check(id)
	if x.tables != nil {
		return x.packed(id)
	}
	return x.objectSize(id)
}

func (x *Index) objectSize(o int) int64 {
	if x.layout.wide {
		return int64(binary.LittleEndian.Uint64(x.layout.sizes.of(x.image)[8*o:]))
	}
	return int64(binary.LittleEndian.Uint32(x.layout.sizes.of(x.image)[4*o:]))
}

// Stamp returns the stamp that sample id's file had when it was listed, or a hash of the stamps of
// the objects of its fields if these are several. It panics if there is no such sample.
func (x *Index) Stamp(id int) Stamp {
	x.check(id)
	return x.StampOf(id, x.ObjectStamp)
}

// ObjectStamp returns the stamp that an object had when it was listed. It panics if there is no
// such object.
func (x *Index) ObjectStamp(o int) Stamp {
	return Stamp(binary.LittleEndian.Uint64(x.layout.stamps.of(x.image)[8*o:]))
}

// StampOf returns the stamp of sample id, given those of its objects.
func (x *Index) StampOf(id int, of func(object int) Stamp) Stamp {
	if x.tables == nil {
		return of(id)
	}
	mixed, last := Stamp(0), -1
	for f := range x.tables.fields {
		r := x.rangeOf(f, id)
		if r.Length == Missing || r.Object == last {
			continue
		}
		if last < 0 {
			mixed = of(r.Object)
		} else {
			mixed = mixed.with(of(r.Object))
		}
		last = r.Object
	}
	return mixed
}

// Name returns the path of sample id relative to the root, with slashes. It may hold any bytes but
// NUL: file names need not be UTF-8. It panics if there is no such sample.
func (x *Index) Name(id int) string {
	var buf [256]byte
	return string(x.AppendName(buf[:0], id))
}

// AppendName appends Name(id) to dst. It does not allocate if dst has the capacity.
func (x *Index) AppendName(dst []byte, id int) []byte {
	x.check(id)
	switch r := x.layout.records; {
	case r == nil:
		return x.appendObject(dst, id)
	case r.keyed:
		return append(dst, x.key(id)...)
	}
	for f := range x.tables.fields {
		if r := x.rangeOf(f, id); r.Length != Missing {
			return x.appendObject(dst, r.Object)
		}
	}
	return dst
}

// appendObject appends the name of object o to dst.
func (x *Index) appendObject(dst []byte, o int) []byte {
	dir := sort.Search(len(x.dirSamples), func(i int) bool { return x.dirSamples[i] > uint32(o) })
	if path := x.path(dir); len(path) > 0 {
		dst = append(append(dst, path...), '/')
	}
	return append(dst, x.base(dir, o)...)
}

// ClassSizes returns the number of samples per class.
func (x *Index) ClassSizes() []int {
	if x.tables != nil {
		return slices.Clone(x.tables.ofClass)
	}
	sizes := make([]int, len(x.classEnds))
	first := uint32(0)
	for i, end := range x.classEnds {
		sizes[i] = int(end - first)
		first = end
	}
	return sizes
}

// Directories iterates over all directories in the order of their samples, the root first,
// including those without samples.
func (x *Index) Directories() iter.Seq2[int, Directory] {
	return func(yield func(int, Directory) bool) {
		for i := range x.layout.directories {
			if !yield(i, x.Directory(i)) {
				return
			}
		}
	}
}

// Equal reports whether two indexes have the same contents, including the times of directories.
func (x *Index) Equal(other *Index) bool { return bytes.Equal(x.image, other.image) }

// String returns a short description of the index.
func (x *Index) String() string {
	return fmt.Sprintf("%d samples in %d classes, %d bytes, fingerprint %x",
		x.Len(), len(x.classes), x.bytes, x.fingerprint)
}

func (x *Index) check(id int) {
	if uint(id) >= uint(x.Len()) {
		panic(fmt.Sprintf("dataset: sample %d of %d", id, x.Len()))
	}
}

// path returns the path of directory dir relative to the root.
func (x *Index) path(dir int) []byte {
	first := uint64(0)
	if dir > 0 {
		first = x.record(dir - 1).pathEnd()
	}
	return x.layout.paths.of(x.image)[first:x.record(dir).pathEnd()]
}

// base returns the file name of sample id, which is in directory dir.
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
	return record(x.layout.directoryTable.of(x.image)[dir*recordSize : (dir+1)*recordSize])
}

// Directory returns the directory with this number, in the order of Directories.
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

// Settled reports whether the times of a directory that was listed at now are sure to change with
// the directory. They are not if it changed shortly before (file system clocks may tick only every
// two seconds), or if an image builder set all times to the epoch.
func Settled(modified, changed int64, now time.Time) bool {
	const granularity, beginning = 2 * time.Second, int64(time.Second)
	newest := max(modified, changed)
	return newest > beginning && newest < now.Add(-granularity).UnixNano()
}
