package catalog

import (
	"fmt"
	"slices"
	"testing"

	"github.com/hdmlp/hdmlp/internal/engine/cache"
	"github.com/hdmlp/hdmlp/internal/source"
)

// files are so many of an extension.
type files struct {
	extension string
	count     int
}

// filesOf is the index of files, of 1000 bytes.
func filesOf(t *testing.T, all []files) *source.Index {
	t.Helper()
	extensions := []string{}
	for _, f := range all {
		extensions = append(extensions, f.extension)
	}
	b := source.NewBuilder([]string{"a"}, extensions)
	b.Directory(source.Directory{Class: -1})
	b.Directory(source.Directory{Path: "a"})
	for at := range 1000 {
		for _, f := range all {
			if at < f.count {
				b.Sample(fmt.Sprintf("%04d%s", at, f.extension), 1000, 0, 0)
			}
		}
	}
	index, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return index
}

// TestFoldersThatHaveForms: most files are named as images that the daemon decodes, and memory has
// room for pixels by the share of PNGs and WebPs.
func TestFoldersThatHaveForms(t *testing.T) {
	for _, c := range []struct {
		files  []files
		forms  bool
		beside int64 // in parts of the dataset, roughly
	}{
		{[]files{{".jpg", 300}, {".JPEG", 10}}, true, 0},
		{[]files{{".png", 300}}, true, 15},
		{[]files{{".WebP", 300}, {".png", 40}}, true, 15},
		{[]files{{".png", 150}, {".jpg", 150}}, true, 7},
		{[]files{{".png", 300}, {".bmp", 200}}, true, 9},
		{[]files{{".png", 30}, {".bmp", 200}}, false, 1},
		{[]files{{".txt", 30}}, false, 0},
	} {
		index := filesOf(t, c.files)
		bytes, beside := WithForms(index, nil)
		all := index.Bytes()
		if formed := Formed(index) != nil; formed != c.forms || bytes != all+all/3+fewSegments ||
			beside < all*c.beside || beside > all*(c.beside+2) || c.beside == 0 && beside > 0 {
			t.Errorf("%v: %v, and %d and %d bytes for %d", c.files, Formed(index), bytes, beside,
				all)
		}
	}
	if index := filesOf(t, nil); Formed(index) != nil {
		t.Error("a dataset without files has forms")
	}
}

// TestConverterOfAllKinds checks that the cache's converter gives what package forms does.
func TestConverterOfAllKinds(t *testing.T) {
	c := &converter{index: filesOf(t, nil)}
	defer c.close()
	png := []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x00\x00" +
		"\x00\x00:~\x9bU\x00\x00\x00\nIDATx\x9cc\xf8\x0f\x00\x01\x01\x01\x00\xb18\xf6\x14" +
		"\x00\x00\x00\x00IEND\xaeB`\x82")
	size := c.Size(0, png, cache.Way{})
	form, kind, ok := c.Convert([]byte("before"), 0, png, cache.Way{})
	if !ok || kind != 3 || int64(len(form)-len("before")) != size {
		t.Fatalf("kind %d of %d bytes instead of %d: %v", kind, len(form), size, ok)
	}
	sample, ok := c.Restore([]byte("before"), form[len("before"):], kind)
	if !ok || string(sample) != "before"+string(png) {
		t.Errorf("%q, %v", sample, ok)
	}
	for kind := range uint8(3) {
		if _, ok := c.Restore(nil, png, kind); ok {
			t.Errorf("a file is a form of kind %d", kind)
		}
	}
	for _, sample := range []string{"", "GIF89a", string(png[:45])} {
		if _, _, ok := c.Convert(nil, 0, []byte(sample), cache.Way{}); ok {
			t.Errorf("%q has a form", sample)
		}
	}
}

// rangesOf returns the ranges of a sample, of objects that it adds.
type rangesOf = func(b *source.RecordBuilder, id int) []source.Range

// recordsOf is the index of 200 samples of these fields, whose ranges objects returns for a sample.
func recordsOf(t *testing.T, fields []string, ranges rangesOf) *source.Index {
	t.Helper()
	b := source.NewRecordBuilder(fields, nil, nil)
	for id := range 200 {
		b.Add(source.Record{Ranges: ranges(b, id)})
	}
	index, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return index
}

// TestFieldsThatHaveForms: the names of fields or of their objects say which are images, or, if
// none does, their sizes.
func TestFieldsThatHaveForms(t *testing.T) {
	files := func(kinds ...string) rangesOf {
		return func(b *source.RecordBuilder, id int) (ranges []source.Range) {
			for _, kind := range kinds {
				object := source.Object{Name: fmt.Sprintf("%d%s", id, kind), Size: 5000}
				ranges = append(ranges, source.Range{Object: b.Object(object), Length: 5000})
			}
			return ranges
		}
	}
	// Samples are parts of one object each, or of one for each 10.
	parts := func(kind string, lengths ...int64) rangesOf {
		object := 0
		return func(b *source.RecordBuilder, id int) (ranges []source.Range) {
			if id%10 == 0 {
				object = b.Object(source.Object{Name: fmt.Sprintf("%d%s", id, kind), Size: 1 << 20})
			}
			for i, n := range lengths {
				ranges = append(ranges, source.Range{
					Object: object, Offset: int64(id%10*50_000 + i*9000 + 1), Length: n,
				})
			}
			return ranges
		}
	}
	for name, c := range map[string]struct {
		fields []string
		ranges rangesOf
		want   []FieldForms
	}{
		"files": {
			[]string{"0", "1", "2"},
			files(".JPG", ".txt", ".jpeg"),
			[]FieldForms{OfNamed, NoForms, OfNamed},
		},
		"files of one field": {[]string{"0"}, files(".jpeg"), []FieldForms{OfNamed}},
		"no images":          {[]string{"0", "1"}, files(".txt", ".npy"), nil},
		"shards": {
			[]string{"json", "jpg", "cls"},
			parts(".tar", 4000, 8000, 1),
			[]FieldForms{NoForms, OfNamed, NoForms},
		},
		"masks in shards": {
			[]string{"jpg", "seg.png"}, parts(".tar", 4000, 8000), []FieldForms{OfNamed, NoForms},
		},
		"images and masks": {[]string{"0", "1"}, files(".jpg", ".png"), []FieldForms{OfNamed, NoForms}},
		"PNGs alone": {
			[]string{"0", "1"},
			files(".png", ".webp"),
			[]FieldForms{WithFiles, WithFiles},
		},
		"shards of arrays": {[]string{"a.npy"}, parts(".tar", 4000), nil},
		"tables": {
			[]string{"image", "text"}, parts(".arrow", 4000, 100), []FieldForms{OfUnnamed, NoForms},
		},
		"tables of small data": {[]string{"image", "text"}, parts(".arrow", 400, 100), nil},
		"missing": {
			[]string{"image", "text"},
			parts(".arrow", source.Missing, 2000),
			[]FieldForms{NoForms, OfUnnamed},
		},
	} {
		got := Formed(recordsOf(t, c.fields, c.ranges))
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v", name, got)
		}
	}
}
