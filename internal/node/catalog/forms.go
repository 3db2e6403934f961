package catalog

import (
	"iter"
	"math"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/hdmlp/hdmlp/internal/engine/cache"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/transform"
	"github.com/hdmlp/hdmlp/internal/transform/forms"
)

// convertShare is of how many processors one makes other forms of samples. It rests while batches
// wait (package cache).
const convertShare = 4

// WithForms returns how many bytes a class of memory may take for a dataset whose samples are kept
// as forms: those of JPEGs take 1.05 to 1.2 times as much, and two segments are needed to replace
// one by the other. beside is how much more may be used, for the pixels of others, and for what
// recipe makes of all, unless it is nil.
func WithForms(index *source.Index, recipe cache.Recipe) (bytes, beside int64) {
	bytes = index.Bytes()
	var decoded, all int64
	for id := range named(index) {
		for f, r := range index.Ranges(nil, id) {
			if r.Length == source.Missing {
				continue
			}
			all += r.Length
			if isDecoded(nameOf(index, id, f)) {
				decoded += r.Length
			}
		}
	}
	if decoded > 0 {
		share := float64(decoded) / float64(all)
		beside = int64(min(share*pixelRatio*float64(bytes), math.MaxInt64/4))
	}
	if recipe != nil {
		beside = max(beside, recipe.Bytes()*int64(index.Len()))
	}
	return bytes + bytes/3 + fewSegments, beside
}

// pixelRatio is up to how many times the size of an image other than a JPEG its pixels are kept, on
// average: 1.5 to 3 times a PNG of a photograph, 6 to 15 times a WebP of one.
const pixelRatio = 15

// fewSegments is the memory that replacing takes of a small dataset, whose segments have 1 MiB.
const fewSegments = 4 << 20

// mostNamed is of how many samples of a dataset the names are looked at.
const mostNamed = 100

// named returns the samples of a dataset whose names are looked at.
func named(index *source.Index) iter.Seq[int] {
	return func(yield func(int) bool) {
		n := min(index.Len(), mostNamed)
		for i := 0; i < n && yield(i*index.Len()/n); i++ {
		}
	}
}

// leastImage is the mean size of a field from which on it may be one of images, if no name says
// what fields are: fewer bytes are decoded in less time than the rest of a sample takes.
const leastImage = 1 << 10

// FieldForms says which other forms a field has.
type FieldForms uint8

const (
	// NoForms: it stays as read.
	NoForms FieldForms = iota
	// OfNamed: it is named as JPEGs.
	OfNamed
	// WithFiles: all that was looked at are named as PNGs or WebPs, so that the files lie in forms.
	WithFiles
	// OfUnnamed: no name says what it is. Those of its values have forms that are images.
	OfUnnamed
)

// Formed returns by field which other forms it has; nil: none has. Most of its objects, or the
// field itself, are named as JPEGs, PNGs or WebPs are. If no name of the dataset says what is in
// objects, as in tables, each field may have forms that is large enough. PNGs and WebPs beside
// JPEGs are masks as a rule, whose pixels take many times their bytes, and have none.
func Formed(index *source.Index) (fields []FieldForms) {
	n := max(len(index.Fields()), 1)
	jpegs, others := make([]int, n), make([]int, n)
	unknown, bytes := make([]int, n), make([]int64, n)
	all := 0
	for id := range named(index) {
		all++
		for f, r := range index.Ranges(nil, id) {
			name := nameOf(index, id, f)
			switch {
			case r.Length == source.Missing:
			case isJPEG(name):
				jpegs[f]++
			case isDecoded(name):
				others[f]++
			case index.Fields() != nil && path.Ext(name) == "":
				unknown[f]++
				bytes[f] += r.Length
			}
		}
	}
	named, any := slices.Max(jpegs)+slices.Max(others) > 0, false
	fields = make([]FieldForms, n)
	for f := range fields {
		masks := jpegs[f] == 0 && slices.Max(jpegs) > 0
		switch {
		case 2*(jpegs[f]+others[f]) > all && jpegs[f] > 0:
			fields[f] = OfNamed
		case 2*(jpegs[f]+others[f]) > all && !masks:
			fields[f] = WithFiles
		case !named && 2*unknown[f] > all && bytes[f] >= leastImage*int64(unknown[f]):
			fields[f] = OfUnnamed
		}
		any = any || fields[f] != NoForms
	}
	if !any {
		return nil
	}
	return fields
}

// FieldSize returns the mean size of a field of the samples that have it, in bytes.
func FieldSize(index *source.Index, field int) float64 {
	bytes, have := int64(0), int64(0)
	for id := range named(index) {
		if r := index.Ranges(nil, id)[field]; r.Length != source.Missing {
			bytes += r.Length
			have++
		}
	}
	return float64(bytes) / float64(max(have, 1))
}

// nameOf returns the name that says of what kind a field of a sample is: of its object, or, if
// objects hold more than one field, an extension that is the field's name; without an extension if
// that says nothing.
func nameOf(index *source.Index, id, f int) string {
	if index.Fields() == nil {
		return index.Name(id)
	}
	field := index.Fields()[f]
	if name := "." + field; isJPEG(name) || isDecoded(name) {
		return name
	}
	r := index.Ranges(nil, id)[f]
	if r.Length == source.Missing {
		return ""
	}
	if object := index.Object(r.Object); r.Offset == 0 && r.Length == object.Size {
		return object.Name
	}
	return path.Ext(field)
}

// isJPEG reports whether a file is named as a JPEG.
func isJPEG(name string) bool {
	extension := strings.ToLower(path.Ext(name))
	return extension == ".jpg" || extension == ".jpeg"
}

// isDecoded reports whether a file is named as an image of which the pixels are kept.
func isDecoded(name string) bool {
	extension := strings.ToLower(path.Ext(name))
	return extension == ".png" || extension == ".webp"
}

const (
	// sparest is how many unused makers are kept.
	sparest = 8
	// convertMemory is how many bytes one may use for an image, which suffices for 10 million pixels
	// of a JPEG. What needs more has no form.
	convertMemory = 64 << 20
)

// converter makes and restores forms of a dataset's samples.
type converter struct {
	index  *source.Index
	formed []bool // by field, whether Formed says that it has forms

	mu    sync.Mutex // guards the following
	spare []*maker
}

var _ cache.Converter = (*converter)(nil)

// newConverter returns the converter of a dataset.
func newConverter(index *source.Index) *converter {
	c := &converter{index: index}
	for _, f := range Formed(index) {
		c.formed = append(c.formed, f != NoForms)
	}
	return c
}

// A maker makes forms, and what a recipe makes for them.
type maker struct {
	forms.Converter
	recipe  *Recipe // nil: none
	workers []*transform.Worker
}

// use has the maker make forms in a way.
func (m *maker) use(way cache.Way) {
	recipe, _ := way.Recipe.(*Recipe)
	m.JPEGs = way.Ample
	if m.recipe == recipe {
		return
	}
	m.leave()
	if m.recipe = recipe; recipe == nil {
		return
	}
	for _, p := range recipe.prefixes {
		if p == nil {
			m.Makers = append(m.Makers, nil)
			continue
		}
		w := p.Worker()
		w.Limit(convertMemory, convertMemory, convertMemory/4)
		m.workers = append(m.workers, w)
		m.Makers = append(m.Makers, &forms.Maker{Prefix: p.Prefix, Worker: w})
	}
}

// leave ends what makes images of the recipe.
func (m *maker) leave() {
	for _, w := range m.workers {
		w.Close()
	}
	m.recipe = nil
	m.workers, m.Makers = nil, nil
}

// get returns a maker of forms in a way, which the caller puts back.
func (c *converter) get(way cache.Way) *maker {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := &maker{Converter: forms.Converter{Memory: convertMemory}}
	if n := len(c.spare); n > 0 {
		m = c.spare[n-1]
		c.spare = c.spare[:n-1]
	}
	m.use(way)
	return m
}

// put takes back a maker.
func (c *converter) put(m *maker) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.spare) == sparest {
		m.leave()
		m.Close()
		return
	}
	c.spare = append(c.spare, m)
}

// close frees what is kept; a nil converter keeps nothing.
func (c *converter) close() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.spare {
		m.leave()
		m.Close()
	}
	c.spare = nil
}

// Size implements cache.Converter.
func (c *converter) Size(id int, sample []byte, way cache.Way) int64 {
	m := c.get(way)
	defer c.put(m)
	switch {
	case c.index.Fields() == nil:
		return m.Size(sample)
	case c.formed == nil:
		return 0
	}
	var few [4][]byte
	return m.RecordSize(c.index.Split(few[:0], id, sample), c.formed)
}

// Convert implements cache.Converter.
func (c *converter) Convert(dst []byte, id int, sample []byte, way cache.Way) (
	form []byte, kind uint8, ok bool,
) {
	m := c.get(way)
	defer c.put(m)
	var err error
	switch {
	case c.index.Fields() == nil:
		form, err = m.Convert(dst, sample)
	case c.formed == nil:
		return dst, 0, false
	default:
		var few [4][]byte
		form, err = m.ConvertRecord(dst, sample, c.index.Split(few[:0], id, sample), c.formed)
	}
	if err != nil {
		return dst, 0, false
	}
	info, err := forms.Read(form[len(dst):])
	if err != nil {
		return dst, 0, false
	}
	return form, uint8(info.Kind), true
}

// Current implements cache.Converter.
func (c *converter) Current(form []byte, way cache.Way) bool {
	m := c.get(way)
	defer c.put(m)
	return m.Current(form)
}

// Describe implements cache.Converter.
func (c *converter) Describe(form []byte, kind uint8) (size int64, digest uint32, ok bool) {
	info, err := forms.Read(form)
	return info.Size, info.Digest, err == nil && uint8(info.Kind) == kind
}

// Split implements cache.Converter.
func (c *converter) Split(dst [][]byte, kinds []uint8, form []byte, kind uint8) (
	_ [][]byte, _ []uint8, ok bool,
) {
	if forms.Kind(kind) != forms.Record {
		return dst, kinds, false
	}
	var few [4]forms.Kind
	dst, of, err := forms.Fields(dst, few[:0], form)
	if err != nil || len(of) != len(c.index.Fields()) {
		return dst, kinds, false
	}
	for _, kind := range of {
		kinds = append(kinds, uint8(kind))
	}
	return dst, kinds, true
}

// File implements cache.Converter.
func (c *converter) File(form []byte, kind uint8) (file []byte, ok bool) {
	if k := forms.Kind(kind); k != forms.Decoded && k != forms.Transformed {
		return nil, false
	}
	return forms.File(form)
}

// Exact implements cache.Converter.
func (c *converter) Exact(form []byte, kind uint8) bool {
	var few [4]forms.Kind
	switch forms.Kind(kind) {
	case forms.Exact, forms.Decoded, forms.Transformed:
		return true
	case forms.Record:
		_, of, err := forms.Fields(nil, few[:0], form)
		return err == nil && !slices.Contains(of, forms.Pixels)
	}
	return false
}

// Restore implements cache.Converter.
func (c *converter) Restore(dst, form []byte, kind uint8) (sample []byte, ok bool) {
	if forms.Kind(kind) == forms.Pixels {
		return dst, false
	}
	m := c.get(cache.Way{})
	defer c.put(m)
	sample, err := m.Restore(dst, form)
	return sample, err == nil
}
