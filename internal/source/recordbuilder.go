package source

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
)

// Record is a sample as a RecordBuilder takes it.
type Record struct {
	Key    string   // what the dataset calls it; may be empty if no record has one
	Class  int      // its position among the classes; 0 if there are none
	Ranges []Range  // one per field; an object is what Object returned
	Values []string // one per column, as bytes
}

// RecordBuilder makes an Index whose samples are ranges of objects, from the objects and the
// samples in order. It is not safe for concurrent use. Build returns the first error.
type RecordBuilder struct {
	// Origin is what the index says that it was made of (Index.Extensions).
	Origin []string

	classes, fields, columns []string

	objects []Object
	samples int
	tagged  bool
	keyed   bool
	wide    bool

	of      []uint32 // per sample and field: the object; unset where the field is missing
	offsets []byte
	lengths []int64
	labels  []byte
	keyEnds []byte
	keys    []byte
	ends    [][]byte // per column
	values  [][]byte
	err     error
}

// NewRecordBuilder returns a RecordBuilder for samples of these fields, of which there is at least
// one, classes, which may be none, and columns of values, which may be none. A column with the name
// of a field has the field's bytes, or nothing: then these need not be read.
func NewRecordBuilder(fields, classes, columns []string) *RecordBuilder {
	return &RecordBuilder{
		fields: slices.Clone(fields), classes: slices.Clone(classes),
		columns: slices.Clone(columns),
		ends:    make([][]byte, len(columns)), values: make([][]byte, len(columns)),
	}
}

// Expect makes room for so many samples, so that tables do not grow as they are added.
func (b *RecordBuilder) Expect(samples int) {
	n := samples * len(b.fields)
	b.of, b.lengths = slices.Grow(b.of, n), slices.Grow(b.lengths, n)
	b.offsets = slices.Grow(b.offsets, offsetSize*n)
}

// Object adds an object, and returns its number, for ranges.
func (b *RecordBuilder) Object(o Object) int {
	b.tagged = b.tagged || o.Tag != [16]byte{}
	b.objects = append(b.objects, o)
	return len(b.objects) - 1
}

// Add adds a sample.
func (b *RecordBuilder) Add(r Record) {
	if len(r.Ranges) != len(b.fields) || len(r.Values) != len(b.columns) {
		b.fail(fmt.Errorf("sample %d has %d ranges of %d fields, and %d values of %d columns",
			b.samples, len(r.Ranges), len(b.fields), len(r.Values), len(b.columns)))
		return
	}
	if len(b.classes) > 0 && uint(r.Class) >= uint(len(b.classes)) {
		b.fail(fmt.Errorf("sample %d has class %d of %d", b.samples, r.Class, len(b.classes)))
		return
	}
	for f, v := range r.Ranges {
		if err := b.check(v); err != nil {
			b.fail(fmt.Errorf("sample %d, field %q: %w", b.samples, b.fields[f], err))
			return
		}
		if v.Length == Missing {
			v = Range{Length: Missing}
		}
		var offset [8]byte
		binary.LittleEndian.PutUint64(offset[:], uint64(v.Offset))
		b.of = append(b.of, uint32(v.Object))
		b.offsets = append(b.offsets, offset[:offsetSize]...)
		b.lengths = append(b.lengths, v.Length)
		b.wide = b.wide || v.Length >= math.MaxUint32
	}
	if len(b.classes) > 0 {
		b.labels = binary.LittleEndian.AppendUint32(b.labels, uint32(r.Class))
	}
	if !b.keyed && r.Key != "" {
		b.keyed, b.keyEnds = true, make([]byte, 4*b.samples)
	}
	if b.keyed {
		b.keys = append(b.keys, r.Key...)
		b.keyEnds = binary.LittleEndian.AppendUint32(b.keyEnds, uint32(len(b.keys)))
	}
	for c, v := range r.Values {
		b.values[c] = append(b.values[c], v...)
		b.ends[c] = binary.LittleEndian.AppendUint32(b.ends[c], uint32(len(b.values[c])))
		if len(b.values[c]) > math.MaxUint32 {
			b.fail(fmt.Errorf("the values of %q take more than 4 GiB", b.columns[c]))
		}
	}
	if len(b.keys) > math.MaxUint32 {
		b.fail(errors.New("the keys take more than 4 GiB"))
	}
	if b.samples++; b.samples > MaxSamples {
		b.fail(fmt.Errorf("more than %d samples", MaxSamples))
	}
}

func (b *RecordBuilder) check(v Range) error {
	switch {
	case v.Length == Missing:
		return nil
	case uint(v.Object) >= uint(len(b.objects)):
		return fmt.Errorf("object %d of %d", v.Object, len(b.objects))
	case v.Offset < 0 || v.Length < 0 || v.Offset > maxOffset:
		return fmt.Errorf("%d bytes at offset %d, which may be at most %d", v.Length, v.Offset,
			int64(maxOffset))
	case v.Offset > b.objects[v.Object].Size || v.Length > b.objects[v.Object].Size-v.Offset:
		return fmt.Errorf("%d bytes at offset %d of %q, which has %d", v.Length, v.Offset,
			b.objects[v.Object].Name, b.objects[v.Object].Size)
	}
	return nil
}

func (b *RecordBuilder) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// recordSections are the sections about samples, encoded.
type recordSections struct {
	header   recordHeader
	flags    uint32
	sections [][]byte
}

// Build returns the index, without the contents of its excerpts (Index.WithContents). The index has
// the objects in the order of their directories and names. The builder must not be used afterwards.
func (b *RecordBuilder) Build() (*Index, error) {
	if b.err != nil {
		return nil, fmt.Errorf("build dataset index: %w", b.err)
	}
	if len(b.fields) == 0 {
		return nil, errors.New("build dataset index: no fields")
	}
	listing, order, err := b.list()
	if err != nil {
		return nil, fmt.Errorf("build dataset index: %w", err)
	}
	s := &recordSections{header: recordHeader{
		samples: uint64(b.samples), fields: uint64(len(b.fields)), columns: uint64(len(b.columns)),
	}}
	if b.tagged {
		s.flags |= tagsFlag
		tags := make([]byte, 16*len(b.objects))
		for old, number := range order {
			copy(tags[16*number:], b.objects[old].Tag[:])
		}
		s.add(tags)
	}
	b.addFields(s, order)
	s.add(b.offsets, b.encodedLengths(s))
	if len(b.classes) > 0 {
		s.flags |= labelsFlag
		s.add(b.labels)
	}
	if b.keyed {
		s.flags |= keysFlag
		s.header.keyText = uint64(len(b.keys))
		s.add(b.keyEnds, b.keys)
	}
	values := bytes.Join(b.values, nil)
	s.header.valueText = uint64(len(values))
	s.add(bytes.Join(b.ends, nil), values)
	return listing.assemble(s)
}

func (s *recordSections) add(sections ...[]byte) { s.sections = append(s.sections, sections...) }

// list returns a builder with the objects by directory and name, and the new number of each.
func (b *RecordBuilder) list() (*Builder, []uint32, error) {
	byName := make([]int, len(b.objects))
	for i := range byName {
		byName[i] = i
	}
	directory := func(i int) string {
		dir, _ := path.Split(b.objects[i].Name)
		return strings.TrimSuffix(dir, "/")
	}
	slices.SortFunc(byName, func(i, j int) int {
		if c := strings.Compare(directory(i), directory(j)); c != 0 {
			return c
		}
		return strings.Compare(b.objects[i].Name, b.objects[j].Name)
	})
	listing := NewBuilder(b.classes, b.Origin)
	listing.Directory(Directory{Class: -1})
	order, dir := make([]uint32, len(b.objects)), ""
	for number, i := range byName {
		o := &b.objects[i]
		if !validPath(o.Name) {
			return nil, nil, fmt.Errorf("the object %q is not below the root", o.Name)
		}
		if number > 0 && o.Name == b.objects[byName[number-1]].Name {
			return nil, nil, fmt.Errorf("there are two objects %q", o.Name)
		}
		if d := directory(i); d != dir {
			listing.Directory(Directory{Path: d, Class: -1})
			dir = d
		}
		listing.Sample(path.Base(o.Name), o.Size, o.Modified, o.Stamp)
		order[i] = uint32(number)
	}
	listing.finish()
	return listing, order, listing.err
}

// addFields adds the table of fields, the columns' names, and where each field's objects are: as
// runs of samples whose objects are one, or follow one another, where these take less, or else as
// a list.
func (b *RecordBuilder) addFields(s *recordSections, order []uint32) {
	_, text := table(b.fields)
	columnEnds, columnText := table(b.columns)
	s.header.fieldText, s.header.columnText = uint64(len(text)), uint64(len(columnText))
	var entries, allRuns, lists []byte
	end := 0
	for f, name := range b.fields {
		end += len(name)
		entries = binary.LittleEndian.AppendUint32(entries, uint32(end))
		objects := b.objectsOf(f, order)
		runs := runsOf(objects)
		if len(runs) <= 4*len(objects) || len(objects) == 0 {
			entries = binary.LittleEndian.AppendUint32(entries, uint32(len(runs)/runSize))
			s.header.runs += uint64(len(runs) / runSize)
			allRuns = append(allRuns, runs...)
			continue
		}
		entries = binary.LittleEndian.AppendUint32(entries, listed)
		s.header.lists++
		for _, o := range objects {
			lists = binary.LittleEndian.AppendUint32(lists, o)
		}
	}
	s.add(entries, text, columnEnds, columnText, allRuns, lists)
}

// objectsOf returns the new numbers of one field's objects; where the field is missing, that of the
// sample before, so that runs are not interrupted.
func (b *RecordBuilder) objectsOf(f int, order []uint32) []uint32 {
	objects := make([]uint32, b.samples)
	last := uint32(0)
	for id := range objects {
		at := id*len(b.fields) + f
		if b.lengths[at] != Missing {
			last = order[b.of[at]]
		}
		objects[id] = last
	}
	return objects
}

// runsOf encodes objects as runs.
func runsOf(objects []uint32) (runs []byte) {
	for id := 0; id < len(objects); {
		step := uint32(0)
		if id+1 < len(objects) && objects[id+1] == objects[id]+1 {
			step = 1
		}
		runs = binary.LittleEndian.AppendUint32(runs, uint32(id))
		runs = binary.LittleEndian.AppendUint32(runs, objects[id])
		runs = binary.LittleEndian.AppendUint32(runs, step)
		for id++; id < len(objects) && objects[id] == objects[id-1]+step; id++ {
		}
	}
	return runs
}

func (b *RecordBuilder) encodedLengths(s *recordSections) []byte {
	if b.wide {
		s.flags |= wideLengthsFlag
	}
	encoded := make([]byte, 0, width(b.wide)*len(b.lengths))
	for _, n := range b.lengths {
		if b.wide {
			encoded = binary.LittleEndian.AppendUint64(encoded, uint64(n))
		} else {
			encoded = binary.LittleEndian.AppendUint32(encoded, uint32(n))
		}
	}
	return encoded
}
