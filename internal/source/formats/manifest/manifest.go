// Package manifest reads the records of a dataset from a list that a process gives: ranges of
// objects, keys, and nothing else. What the process knows of its records beside that, such as
// labels, it keeps.
//
// docs/FORMATS.md, "Manifests", describes the list byte by byte.
package manifest

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/formats"
	"github.com/hdmlp/hdmlp/internal/source/objects"
)

// magic is how a manifest begins. The length of the header follows, u32, and the header.
const magic = "HDMLPM\x01\n"

// Limits of a header.
const (
	maxHeader = 1 << 20
	maxFields = 1 << 10
)

// progressInterval is how many objects are found between two calls of Progress.
const progressInterval = 256

// toEnd is the length of a range that ends with its object.
const toEnd = -2

// header describes the sections of a manifest, which follow it in this order, each at a multiple of
// 8 bytes.
type header struct {
	Samples int      `json:"samples"`
	Objects int      `json:"objects"`
	Names   int      `json:"names"` // bytes of the objects' names
	Fields  []string `json:"fields"`
	Whole   bool     `json:"whole"` // each range is a whole object: there are no offsets and lengths
	Keys    int      `json:"keys"`  // bytes of the keys; -1: there are none
	// Runs are the numbers of runs of the fields; nil: ranges are listed one by one.
	Runs []int `json:"runs,omitempty"`
}

// sections are the sections of a manifest.
type sections struct {
	header
	nameEnds, names  []byte
	runs             [][]byte // of each field; nil: there are none
	objects          []byte   // i32 per field and sample; -1: the sample does not have the field
	offsets, lengths []byte   // i64 per field and sample; nil: whole objects
	keyEnds, keys    []byte
}

// Format returns the format.
func Format() formats.Format {
	return formats.Format{
		Name:     "records",
		Help:     "listed by a process: files, ranges, arrays, HDF5, MDS, Parquet, TFRecord, Zip",
		Manifest: true,
		Index:    Index,
	}
}

// Index implements formats.Format.
func Index(ctx context.Context, o objects.Objects, _ []string, opts formats.Options,
) (*source.Index, error) {
	s, err := parse(opts.Manifest.Data)
	if err != nil {
		return nil, fmt.Errorf("the list of records: %w", err)
	}
	b := source.NewRecordBuilder(s.Fields, nil, nil)
	listed, err := s.stat(ctx, o, opts.Progress)
	if err != nil {
		return nil, err
	}
	b.Expect(s.Samples)
	for _, object := range listed {
		b.Object(object)
	}
	r := source.Record{Ranges: make([]source.Range, len(s.Fields))}
	at := s.at
	if s.Runs != nil {
		at = newCursor(s).at
	}
	for id := range s.Samples {
		for f := range s.Fields {
			if r.Ranges[f], err = at(f, id, listed); err != nil {
				return nil, fmt.Errorf("record %d, field %s: %w", id, human.Name(s.Fields[f]), err)
			}
		}
		r.Key = s.key(id)
		b.Add(r)
	}
	return b.Build()
}

// parse checks a manifest's header, and finds its sections.
func parse(data []byte) (*sections, error) {
	if len(data) < len(magic)+4 || string(data[:len(magic)]) != magic {
		return nil, errors.New("it does not begin as one does")
	}
	n := int(binary.LittleEndian.Uint32(data[len(magic):]))
	rest := data[len(magic)+4:]
	if n > maxHeader || n > len(rest) {
		return nil, fmt.Errorf("its header has %d bytes", n)
	}
	s := new(sections)
	d := json.NewDecoder(strings.NewReader(string(rest[:n])))
	d.DisallowUnknownFields()
	if err := d.Decode(&s.header); err != nil {
		return nil, fmt.Errorf("its header: %w", err)
	}
	if err := s.check(len(data)); err != nil {
		return nil, err
	}
	at := len(magic) + 4 + n
	ok := true
	next := func(n int) (section []byte) {
		at = (at + 7) &^ 7
		if ok = ok && at <= len(data) && n <= len(data)-at; !ok {
			return nil
		}
		section = data[at : at+n : at+n]
		at += n
		return section
	}
	ranges := s.Samples * len(s.Fields)
	s.nameEnds, s.names = next(8*s.Objects), next(s.Names)
	switch {
	case s.Runs != nil:
		for _, n := range s.Runs {
			s.runs = append(s.runs, next(runSize*n))
		}
	case s.Whole:
		s.objects = next(4 * ranges)
	default:
		s.objects = next(4 * ranges)
		s.offsets, s.lengths = next(8*ranges), next(8*ranges)
	}
	if s.Keys >= 0 {
		s.keyEnds, s.keys = next(8*s.Samples), next(s.Keys)
	}
	switch {
	case !ok:
		return nil, fmt.Errorf("it has %d bytes, which is too few", len(data))
	case at != len(data):
		return nil, fmt.Errorf("it has %d bytes, and should have %d", len(data), at)
	case !ascending(s.nameEnds, s.Names):
		return nil, errors.New("its names of objects have invalid offsets")
	case s.Keys >= 0 && !ascending(s.keyEnds, s.Keys):
		return nil, errors.New("its keys have invalid offsets")
	}
	for f := range s.runs {
		if err := s.checkRuns(f); err != nil {
			return nil, fmt.Errorf("field %s: %w", human.Name(s.Fields[f]), err)
		}
	}
	return s, nil
}

// check checks the numbers of a header, such that no product of them overflows.
func (h *header) check(size int) error {
	switch {
	case len(h.Fields) < 1 || len(h.Fields) > maxFields:
		return fmt.Errorf("it has %d fields", len(h.Fields))
	case h.Samples < 0 || h.Samples > source.MaxSamples || h.Runs == nil && h.Samples > size ||
		h.Samples > max(mostInRuns, size):
		return fmt.Errorf("it has %d records", h.Samples)
	case h.Objects < 0 || h.Objects > size || h.Names < 0 || h.Names > size || h.Keys < -1 ||
		h.Keys > size:
		return fmt.Errorf("it has %d objects, %d bytes of names and %d bytes of keys", h.Objects,
			h.Names, h.Keys)
	case h.Runs != nil && (len(h.Runs) != len(h.Fields) || h.Whole):
		return fmt.Errorf("it has runs of %d fields, and %d fields", len(h.Runs), len(h.Fields))
	}
	for _, n := range h.Runs {
		if n < 0 || n > size {
			return fmt.Errorf("a field has %d runs", n)
		}
	}
	return nil
}

func ascending(ends []byte, total int) bool {
	last := uint64(0)
	for i := 0; i < len(ends); i += 8 {
		end := binary.LittleEndian.Uint64(ends[i:])
		if end < last {
			return false
		}
		last = end
	}
	return last == uint64(total)
}

// text returns text number i of those with these ends.
func text(ends, all []byte, i int) string {
	begin := uint64(0)
	if i > 0 {
		begin = binary.LittleEndian.Uint64(ends[8*(i-1):])
	}
	return string(all[begin:binary.LittleEndian.Uint64(ends[8*i:])])
}

// key returns the key of a record; "" if there are none.
func (s *sections) key(id int) string {
	if s.Keys < 0 {
		return ""
	}
	return text(s.keyEnds, s.keys, id)
}

// at returns the range of a record's field.
func (s *sections) at(f, id int, listed []source.Object) (r source.Range, err error) {
	i := f*s.Samples + id
	object := int32(binary.LittleEndian.Uint32(s.objects[4*i:]))
	switch {
	case object == -1:
		return source.Range{Length: source.Missing}, nil
	case object < 0 || int(object) >= len(listed):
		return r, fmt.Errorf("object %d of %d", object, len(listed))
	}
	r = source.Range{Object: int(object), Length: listed[object].Size}
	if s.Whole {
		return r, nil
	}
	r.Offset = int64(binary.LittleEndian.Uint64(s.offsets[8*i:]))
	r.Length = int64(binary.LittleEndian.Uint64(s.lengths[8*i:]))
	return within(r, &listed[object])
}

// within returns a range whose length is known, or an error if its object does not have it.
func within(r source.Range, of *source.Object) (source.Range, error) {
	if r.Length == toEnd {
		r.Length = of.Size - r.Offset
	}
	if r.Offset < 0 || r.Length < 0 || r.Offset > of.Size || r.Length > of.Size-r.Offset {
		return r, fmt.Errorf("%d bytes from byte %d on of %s, which has %d bytes: check the ranges, "+
			"and whether the file was written since they were made", r.Length, r.Offset,
			human.Name(of.Name), of.Size)
	}
	return r, nil
}

// stat returns the objects as they are now.
func (s *sections) stat(ctx context.Context, o objects.Objects, progress func(int64),
) ([]source.Object, error) {
	listed, names := make([]source.Object, s.Objects), make([]string, s.Objects)
	for i := range names {
		var err error
		if names[i], err = s.name(i); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		mu    sync.Mutex // guards the following
		found int64
		bad   = map[int]error{} // objects that are missing, or no files
	)
	err := objects.Stats(ctx, o, names, func(i int, object source.Object, err error) {
		listed[i] = object
		mu.Lock()
		defer mu.Unlock()
		switch {
		case errors.Is(err, source.ErrMissing), errors.Is(err, source.ErrUnreadable):
			bad[i] = err
		case err != nil:
			cancel(err)
		}
		if found++; progress != nil && (found%progressInterval == 0 || found == int64(len(names))) {
			progress(found)
		}
	})
	if err != nil {
		return nil, err
	}
	return listed, s.unusable(bad)
}

// unusable returns the error for objects that are none: it names the first record that has one.
func (s *sections) unusable(bad map[int]error) error {
	if len(bad) == 0 {
		return nil
	}
	if at := s.first(bad); at != nil {
		others := ""
		if len(bad) > 1 {
			others = fmt.Sprintf(" (%d of the %d files cannot be used)", len(bad), s.Objects)
		}
		return fmt.Errorf("record %d, field %s: %w%s; correct the list of files, or restore them",
			at.id, human.Name(s.Fields[at.field]), bad[at.object], others)
	}
	for _, err := range bad { // of no record
		return err
	}
	return nil
}

// name returns the name of an object.
func (s *sections) name(i int) (string, error) {
	name := text(s.nameEnds, s.names, i)
	if name == "" || path.IsAbs(name) || path.Clean(name) != name || strings.HasPrefix(name, "../") ||
		name == ".." || strings.IndexByte(name, 0) >= 0 {
		return "", fmt.Errorf("object %d is %s, which is not below the dataset's root", i,
			human.Name(name))
	}
	return name, nil
}
