package catalog

import (
	"fmt"
	"testing"

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
		bytes, beside := WithForms(index)
		all := index.Bytes()
		if Forms(index) != c.forms || bytes != all+all/3+fewSegments ||
			beside < all*c.beside || beside > all*(c.beside+2) || c.beside == 0 && beside > 0 {
			t.Errorf("%v: %v, and %d and %d bytes for %d", c.files, Forms(index), bytes, beside,
				all)
		}
	}
	if index := filesOf(t, nil); Forms(index) {
		t.Error("a dataset without files has forms")
	}
}

// TestConverterOfAllKinds: what the cache is told of forms is what package forms says.
func TestConverterOfAllKinds(t *testing.T) {
	c := &converter{}
	defer c.close()
	png := []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x00\x00" +
		"\x00\x00:~\x9bU\x00\x00\x00\nIDATx\x9cc\xf8\x0f\x00\x01\x01\x01\x00\x1b\xb6\xeeV" +
		"\x00\x00\x00\x00IEND\xaeB`\x82")
	size := c.Size(png)
	form, kind, ok := c.Convert([]byte("before"), png)
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
		if _, _, ok := c.Convert(nil, []byte(sample)); ok {
			t.Errorf("%q has a form", sample)
		}
	}
}
