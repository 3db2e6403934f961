package source

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sort"

	"github.com/zeebo/xxh3"
)

// The part of an index that describes samples as ranges of objects. docs/FORMATS.md, "The dataset
// index", describes it byte by byte.
const (
	recordHeaderSize = 96

	// Flags of version 3.
	tagsFlag        = 1 << 1 // the objects have tags
	labelsFlag      = 1 << 2 // the samples have labels
	keysFlag        = 1 << 3 // the samples have keys of their own
	wideLengthsFlag = 1 << 4 // lengths of ranges take 8 bytes each instead of 4
	recordFlags     = tagsFlag | labelsFlag | keysFlag | wideLengthsFlag

	fieldSize  = 8  // of a field's entry: the end of its name, and its number of runs
	runSize    = 12 // of a run
	offsetSize = 5  // of a range's offset
	listed     = math.MaxUint32
	maxOffset  = 1<<(8*offsetSize) - 1

	// maxFields bounds the number of fields, and of columns.
	maxFields = 1 << 10
)

// recordHeader is the decoded second part of the header.
type recordHeader struct {
	samples, fields, columns                  uint64
	runs                                      uint64 // of all fields
	lists                                     uint64 // fields whose objects are listed instead
	fieldText, columnText, keyText, valueText uint64
}

func (h *recordHeader) parts() []*uint64 {
	return []*uint64{
		&h.samples, &h.fields, &h.columns, &h.runs, &h.lists,
		&h.fieldText, &h.columnText, &h.keyText, &h.valueText,
	}
}

func (h *recordHeader) encode(b []byte) []byte {
	for _, p := range h.parts() {
		b = binary.LittleEndian.AppendUint64(b, *p)
	}
	return append(b, make([]byte, recordHeaderSize-8*len(h.parts()))...)
}

func parseRecordHeader(b []byte) (*recordHeader, error) {
	h := new(recordHeader)
	parts := h.parts()
	for i, p := range parts {
		*p = binary.LittleEndian.Uint64(b[8*i:])
	}
	switch {
	case len(bytes.Trim(b[8*len(parts):recordHeaderSize], "\x00")) > 0:
		return nil, errors.New("unknown flags")
	case h.samples > MaxSamples:
		return nil, fmt.Errorf("%d samples", h.samples)
	case h.fields < 1 || h.fields > maxFields || h.columns > maxFields || h.lists > h.fields:
		return nil, fmt.Errorf("%d fields, %d of them listed, and %d columns", h.fields, h.lists,
			h.columns)
	case h.runs > h.fields*h.samples:
		return nil, fmt.Errorf("%d runs of %d samples", h.runs, h.samples)
	case max(h.fieldText, h.columnText, h.keyText, h.valueText) > maxText:
		return nil, errors.New("too much text")
	case h.fieldText < h.fields || h.columnText < h.columns:
		return nil, errors.New("it has more names than bytes of text")
	}
	return h, nil
}

// recordLayout holds the positions of the sections about samples.
type recordLayout struct {
	samples, fields, columns int
	tagged, labelled, keyed  bool
	wide                     bool // lengths take 8 bytes

	tags                   span
	fieldTable, fieldText  span
	columnEnds, columnText span
	runs, lists            span
	offsets, lengths       span
	labels                 span
	keyEnds, keys          span
	valueEnds, values      span
}

// layout computes the positions. next returns the next section, of that length.
func (h *recordHeader) layout(flags uint32, objects int, next func(int) span) *recordLayout {
	l := &recordLayout{
		samples: int(h.samples), fields: int(h.fields), columns: int(h.columns),
		tagged: flags&tagsFlag != 0, labelled: flags&labelsFlag != 0, keyed: flags&keysFlag != 0,
		wide: flags&wideLengthsFlag != 0,
	}
	if l.tagged {
		l.tags = next(16 * objects)
	}
	l.fieldTable, l.fieldText = next(fieldSize*l.fields), next(int(h.fieldText))
	l.columnEnds, l.columnText = next(4*l.columns), next(int(h.columnText))
	l.runs = next(runSize * int(h.runs))
	l.lists = next(4 * int(h.lists) * l.samples)
	l.offsets = next(offsetSize * l.fields * l.samples)
	l.lengths = next(width(l.wide) * l.fields * l.samples)
	if l.labelled {
		l.labels = next(4 * l.samples)
	}
	if l.keyed {
		l.keyEnds, l.keys = next(4*l.samples), next(int(h.keyText))
	}
	l.valueEnds, l.values = next(4*l.columns*l.samples), next(int(h.valueText))
	return l
}

// field is where the objects of one field's ranges are: runs of samples, or a list.
type field struct {
	name string
	runs []byte // each: first sample u32, its object u32, step u32 from one sample's to the next
	list []byte // u32 per sample; nil: there are runs
}

// object returns the object of the field's range in sample id.
func (f *field) object(id int) int {
	if f.list != nil {
		return int(binary.LittleEndian.Uint32(f.list[4*id:]))
	}
	n := len(f.runs) / runSize
	i := sort.Search(n, func(i int) bool { return f.first(i) > id }) - 1
	r := f.runs[runSize*i:]
	return int(binary.LittleEndian.Uint32(r[4:])) +
		int(binary.LittleEndian.Uint32(r[8:]))*(id-f.first(i))
}

func (f *field) first(run int) int {
	return int(binary.LittleEndian.Uint32(f.runs[runSize*run:]))
}

// recordTables are what is decoded of the sections about samples.
type recordTables struct {
	fields     []field
	columns    []string
	valueStart []uint64 // per column: where its values begin
	ofClass    []int    // samples per class
}

// Fields returns the names of the fields, in the order in which a packed sample has them; nil if
// each object is a sample. The caller must not change it.
func (x *Index) Fields() []string { return x.fieldNames }

// Columns returns the names of the columns of values; nil if there are none. The caller must not
// change it.
func (x *Index) Columns() []string {
	if x.tables == nil {
		return nil
	}
	return x.tables.columns
}

// Objects returns the number of objects.
func (x *Index) Objects() int { return x.layout.objects }

// Object returns object number o. Its Modified is not in the index, and 0. It panics if there is no
// such object, as indexing a slice does.
func (x *Index) Object(o int) Object {
	var buf [256]byte
	object := Object{
		Name: string(x.appendObject(buf[:0], o)), Size: x.objectSize(o), Stamp: x.ObjectStamp(o),
	}
	if r := x.layout.records; r != nil && r.tagged {
		copy(object.Tag[:], r.tags.of(x.image)[16*o:])
	}
	return object
}

// Ranges appends the ranges of sample id, one per field, to dst. It panics if there is no such
// sample.
func (x *Index) Ranges(dst []Range, id int) []Range {
	x.check(id)
	if x.tables == nil {
		return append(dst, Range{Object: id, Length: x.objectSize(id)})
	}
	for f := range x.tables.fields {
		dst = append(dst, x.rangeOf(f, id))
	}
	return dst
}

// Split appends the fields of a packed sample to dst, as parts of its bytes; nil for a field that
// the sample does not have. It panics if there is no such sample.
func (x *Index) Split(dst [][]byte, id int, packed []byte) [][]byte {
	if x.tables == nil {
		return append(dst, packed)
	}
	x.check(id)
	at, n := int64(0), x.layout.records.fields
	for f := range n {
		length := x.length(id*n + f)
		if length == Missing {
			dst = append(dst, nil)
			continue
		}
		at = aligned(at)
		dst = append(dst, packed[at:at+length:at+length])
		at += length
	}
	return dst
}

func (x *Index) rangeOf(f, id int) Range {
	r := x.layout.records
	at := id*r.fields + f
	length := x.length(at)
	if length == Missing {
		return Range{Length: Missing}
	}
	var offset [8]byte
	copy(offset[:], r.offsets.of(x.image)[offsetSize*at:][:offsetSize])
	return Range{
		Object: x.tables.fields[f].object(id),
		Offset: int64(binary.LittleEndian.Uint64(offset[:])), Length: length,
	}
}

// length returns the length of a range by its position among all.
func (x *Index) length(at int) int64 {
	r := x.layout.records
	lengths := r.lengths.of(x.image)
	if r.wide {
		return int64(binary.LittleEndian.Uint64(lengths[8*at:])) // Missing is all ones
	}
	if n := binary.LittleEndian.Uint32(lengths[4*at:]); n != math.MaxUint32 {
		return int64(n)
	}
	return Missing
}

// packed returns the size of the packed sample.
func (x *Index) packed(id int) (size int64) {
	n := x.layout.records.fields
	for f := range n {
		if length := x.length(id*n + f); length != Missing {
			size = aligned(size) + length
		}
	}
	return size
}

// Value returns what column c has for sample id, as bytes; an empty text may also mean that the
// sample has no such value. It panics if there is no such sample or column.
func (x *Index) Value(c, id int) string { return string(x.AppendValue(nil, c, id)) }

// AppendValue appends the bytes of Value to dst.
func (x *Index) AppendValue(dst []byte, c, id int) []byte {
	x.check(id)
	r := x.layout.records
	ends := r.valueEnds.of(x.image)[4*c*r.samples:]
	begin := uint64(0)
	if id > 0 {
		begin = uint64(binary.LittleEndian.Uint32(ends[4*(id-1):]))
	}
	end := uint64(binary.LittleEndian.Uint32(ends[4*id:]))
	start := x.tables.valueStart[c]
	return append(dst, r.values.of(x.image)[start+begin:start+end]...)
}

// key returns the key of sample id of a keyed index.
func (x *Index) key(id int) []byte {
	r := x.layout.records
	ends := r.keyEnds.of(x.image)
	begin := uint32(0)
	if id > 0 {
		begin = binary.LittleEndian.Uint32(ends[4*(id-1):])
	}
	return r.keys.of(x.image)[begin:binary.LittleEndian.Uint32(ends[4*id:])]
}

// recordStages returns the parts of the image about samples that can be checked one after another.
func (x *Index) recordStages() []stage {
	r := x.layout.records
	if r == nil {
		return nil
	}
	x.tables = new(recordTables)
	return []stage{
		{r.columnText.end, x.verifyFields},
		{r.lists.end, x.verifyObjects},
		{r.lengths.end, x.verifyRanges},
		{r.labels.end, x.verifyLabels},
		{r.keys.end, x.verifyKeys},
		{r.values.end, x.verifyValues},
	}
}

func (x *Index) verifyFields() error {
	r, t := x.layout.records, x.tables
	table := r.fieldTable.of(x.image)
	ends := make([]byte, 0, 4*r.fields)
	for i := range r.fields {
		ends = append(ends, table[fieldSize*i:fieldSize*i+4]...)
	}
	names, err := texts(ends, r.fieldText.of(x.image))
	if err != nil {
		return fmt.Errorf("fields: %w", err)
	}
	t.columns, err = texts(r.columnEnds.of(x.image), r.columnText.of(x.image))
	if err != nil {
		return fmt.Errorf("columns: %w", err)
	}
	for _, list := range [][]string{names, t.columns} {
		seen := map[string]bool{}
		for _, name := range list {
			if seen[name] {
				return fmt.Errorf("there are two fields or columns %q", name)
			}
			seen[name] = true
		}
	}
	t.fields, x.fieldNames = make([]field, r.fields), names
	for i, name := range names {
		t.fields[i].name = name
	}
	return nil
}

// verifyObjects checks that every range's object exists.
func (x *Index) verifyObjects() error {
	r, t := x.layout.records, x.tables
	runs, lists := r.runs.of(x.image), r.lists.of(x.image)
	table := r.fieldTable.of(x.image)
	for i := range t.fields {
		f := &t.fields[i]
		n := binary.LittleEndian.Uint32(table[fieldSize*i+4:])
		if n == listed {
			if len(lists) < 4*r.samples {
				return fmt.Errorf("field %d has no list of objects", i)
			}
			f.list, lists = lists[:4*r.samples:4*r.samples], lists[4*r.samples:]
			for id := range r.samples {
				if f.object(id) >= x.layout.objects {
					return fmt.Errorf("field %d of sample %d is in no object", i, id)
				}
			}
			continue
		}
		length := runSize * int(n)
		if len(runs) < length || (n == 0) != (r.samples == 0) {
			return fmt.Errorf("field %d has an invalid number of runs", i)
		}
		f.runs, runs = runs[:length:length], runs[length:]
		if err := x.verifyRuns(f); err != nil {
			return fmt.Errorf("field %d: %w", i, err)
		}
	}
	if len(runs) > 0 || len(lists) > 0 {
		return errors.New("there are objects after the last field's")
	}
	return nil
}

func (x *Index) verifyRuns(f *field) error {
	samples := x.layout.records.samples
	n := len(f.runs) / runSize
	for i := range n {
		r := f.runs[runSize*i:]
		last := samples - 1
		if i+1 < n {
			last = f.first(i+1) - 1
		}
		object, step := uint64(binary.LittleEndian.Uint32(r[4:])), binary.LittleEndian.Uint32(r[8:])
		switch {
		case i == 0 && f.first(0) != 0, f.first(i) > last, last >= samples, step > 1,
			object+uint64(step)*uint64(last-f.first(i)) >= uint64(x.layout.objects):
			return fmt.Errorf("run %d is invalid", i)
		}
	}
	return nil
}

// verifyRanges checks that every range lies in its object, and adds up the sizes of the samples.
func (x *Index) verifyRanges() error {
	r := x.layout.records
	var sum, largest int64
	for id := range r.samples {
		for f := range r.fields {
			v := x.rangeOf(f, id)
			if v.Length == Missing {
				at := offsetSize * (id*r.fields + f)
				if !bytes.Equal(r.offsets.of(x.image)[at:at+offsetSize], make([]byte, offsetSize)) {
					return fmt.Errorf("field %d of sample %d is missing, and has an offset", f, id)
				}
				continue
			}
			size := x.objectSize(v.Object)
			if v.Length < 0 || v.Offset > size || v.Length > size-v.Offset {
				return fmt.Errorf("field %d of sample %d lies outside its object", f, id)
			}
		}
		size := x.packed(id)
		if size > math.MaxInt64-sum {
			return errors.New("the sizes add up to more than 2^63 bytes")
		}
		sum += size
		largest = max(largest, size)
	}
	x.bytes, x.largest = sum, largest
	return nil
}

func (x *Index) verifyLabels() error {
	r := x.layout.records
	x.tables.ofClass = make([]int, len(x.classes))
	if !r.labelled {
		return nil
	}
	labels := r.labels.of(x.image)
	for id := range r.samples {
		class := binary.LittleEndian.Uint32(labels[4*id:])
		if uint64(class) >= uint64(len(x.classes)) {
			return fmt.Errorf("sample %d has the invalid class %d", id, class)
		}
		x.tables.ofClass[class]++
	}
	return nil
}

func (x *Index) verifyKeys() error {
	r := x.layout.records
	if !r.keyed {
		return nil
	}
	if bytes.IndexByte(r.keys.of(x.image), 0) >= 0 {
		return errors.New("a key has a zero byte")
	}
	return ascending(r.keyEnds.of(x.image), uint64(r.keys.end-r.keys.first), "key")
}

func (x *Index) verifyValues() error {
	r, t := x.layout.records, x.tables
	total := uint64(r.values.end - r.values.first)
	t.valueStart = make([]uint64, r.columns)
	start := uint64(0)
	for c := range r.columns {
		ends := r.valueEnds.of(x.image)[4*c*r.samples : 4*(c+1)*r.samples]
		t.valueStart[c] = start
		length := uint64(0)
		if r.samples > 0 {
			length = uint64(binary.LittleEndian.Uint32(ends[len(ends)-4:]))
		}
		if err := ascending(ends, length, "value"); err != nil {
			return fmt.Errorf("column %d: %w", c, err)
		}
		if start += length; start > total {
			return fmt.Errorf("column %d has values outside of the text", c)
		}
	}
	if start != total {
		return errors.New("there are bytes after the last value")
	}
	return nil
}

// ascending checks the ends of texts, which may be empty, and that the last one is total.
func ascending(ends []byte, total uint64, what string) error {
	last := uint32(0)
	for i := 0; i < len(ends); i += 4 {
		end := binary.LittleEndian.Uint32(ends[i:])
		if end < last {
			return fmt.Errorf("%s %d has an invalid offset", what, i/4)
		}
		last = end
	}
	if uint64(last) != total {
		return fmt.Errorf("there are bytes after the last %s", what)
	}
	return nil
}

// hashRecords hashes the listing of an index with records: the objects (the names of the classes
// and, for every object, its directory, name, size and modification time), their tags, and all
// about the samples. It covers neither the root's path nor stamps.
func (x *Index) hashRecords(objects [16]byte) [16]byte {
	r := x.layout.records
	h := xxh3.New()
	// A hash never returns an error.
	_, _ = h.WriteString("hdmlp records 1\n")
	_, _ = h.Write(objects[:])
	_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, uint64(r.samples)))
	_, _ = h.Write(x.image[x.layout.stamps.end:r.values.end])
	return h.Sum128().Bytes()
}
