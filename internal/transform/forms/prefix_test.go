package forms

import (
	"bytes"
	"errors"
	"testing"

	"github.com/hdmlp/hdmlp/internal/transform/codec"
	"github.com/hdmlp/hdmlp/internal/transform/random"
)

// stripes writes the bytes of the file, or refuses all.
type stripes struct{ refuse error }

func (s stripes) Apply(dst, file []byte, _ random.Key) error {
	for i := range dst {
		dst[i] = file[i%len(file)]
	}
	return s.refuse
}

func (stripes) Whole(bool) {}

// small makes the Transformed form in testdata.
var small = Maker{Prefix{Recipe{0: 7, 15: 9}, 11, 5, 3}, stripes{}}

// TestTransformed: the form in testdata, which every release reads, is what Convert makes; it gives
// the file, and everything of it, and, by the recipe, the pixels.
func TestTransformed(t *testing.T) {
	form := converted(t, "transformed")
	c := Converter{Makers: []*Maker{&small}, JPEGs: true}
	defer c.Close()
	var d codec.Decoder
	defer d.Close()
	file := sampleNamed(t, "small.png")
	again, err := c.Convert([]byte("before"), file)
	if err != nil || string(again) != "before"+string(form) || c.Size(file) != int64(len(form)) {
		t.Errorf("another form of %d instead of %d bytes: %v", len(again)-6, len(form), err)
	}
	info, err := Read(form)
	if err != nil || Check(form) != nil || info.Kind != Transformed ||
		info.Size != int64(len(file)) {
		t.Fatalf("%+v, %v, %v", info, err, Check(form))
	}
	if got, err := c.Restore([]byte("before"), form); string(got) != "before"+string(file) {
		t.Errorf("another file: %v", err)
	}
	compare(t, "transformed", &d, file, form)
	m, ok := ResultOf(form, small.Prefix)
	want := make([]byte, 11*5*3)
	_ = small.Worker.Apply(want, file, random.Key{})
	if !ok || !bytes.Equal(m.Pix, want) || m.Width != 11 || m.Height != 5 ||
		m.Channels != 3 || m.Stride != 33 {
		t.Errorf("other pixels: %+v, %v", m, ok)
	}
	if _, ok := ResultOf(form, Prefix{Recipe{1}, 11, 5, 3}); ok {
		t.Error("of another recipe")
	}
	other := small.Prefix
	other.Height, other.Width = small.Width, small.Height
	if _, ok := ResultOf(form, other); ok {
		t.Error("of another size")
	}
	if _, ok := ResultOf(converted(t, "small.png"), small.Prefix); ok {
		t.Error("of a Decoded form")
	}
	testAltered(t, form)
}

// TestWhichAreTransformed: which form an image gets, and which forms are to be made anew.
func TestWhichAreTransformed(t *testing.T) {
	if !canConvert {
		t.Skip("builds without cgo make no forms of JPEGs")
	}
	large, gray := small, small
	huge, refusing := small, small
	large.Width, large.Height = 100, 100
	huge.Width, huge.Height = 1000, 1000
	gray.Channels, gray.Recipe = 1, Recipe{3}
	refusing.Worker, refusing.Recipe = stripes{codec.ErrNotPacked}, Recipe{4}
	jpeg, png := sampleNamed(t, "restart-1"), sampleNamed(t, "small.png")
	var old Converter
	defer old.Close()
	for name, test := range map[string]struct {
		maker Maker
		jpegs bool
		file  []byte
		kind  Kind
		stays bool // what the file has without a Prefix is what it is to have
	}{
		"a PNG":                           {small, false, png, Transformed, false},
		"a PNG of few pixels":             {large, true, png, Decoded, true},
		"a JPEG":                          {small, true, jpeg, Transformed, false},
		"a JPEG without room for all":     {small, false, jpeg, Exact, true},
		"a JPEG that is small beside it":  {huge, true, jpeg, Exact, true},
		"gray":                            {gray, true, jpeg, Transformed, false},
		"a JPEG that is refused":          {refusing, true, jpeg, Exact, false},
		"a PNG that is refused":           {refusing, true, png, Decoded, false},
		"a progressive JPEG":              {small, true, jpegNamed(t, "scans"), Transformed, true},
		"a progressive JPEG without room": {small, false, jpegNamed(t, "scans"), Pixels, true},
	} {
		c := Converter{Makers: []*Maker{&test.maker}, JPEGs: test.jpegs}
		form, err := c.Convert(nil, test.file)
		info, _ := Read(form)
		if err != nil || info.Kind != test.kind || int64(len(form)) > c.Size(test.file) &&
			test.maker.Worker == (stripes{}) {
			t.Errorf("%s: %v of %d bytes, at most %d: %v", name, info.Kind, len(form),
				c.Size(test.file), err)
		}
		if test.maker.Worker == (stripes{}) && !c.Current(form) {
			t.Errorf("%s: it would be made anew", name)
		}
		if info.Kind == Transformed && old.Current(form) {
			t.Errorf("%s: it stays without a Prefix", name)
		}
		before, err := old.Convert(nil, test.file)
		if err != nil || c.Current(before) != test.stays {
			t.Errorf("%s: the one before stays: %v, %v", name, !test.stays, err)
		}
		c.Close()
	}
}

// TestTransformedFields: fields of a Record have the forms of their own Prefixes.
func TestTransformedFields(t *testing.T) {
	other := small
	other.Recipe = Recipe{5}
	png := sampleNamed(t, "small.png")
	sample, parts := packedOf(png, []byte("some text"), png, png)
	c := Converter{Makers: []*Maker{&small, nil, &other}}
	defer c.Close()
	converts := []bool{true, false, true, true}
	form, err := c.ConvertRecord(nil, sample, parts, converts)
	if err != nil || int64(len(form)) != c.RecordSize(parts, converts) {
		t.Fatalf("%d bytes: %v", len(form), err)
	}
	checkKinds := []Kind{Transformed, AsRead, Transformed, Decoded}
	fields, kinds, err := Fields(nil, nil, form)
	if err != nil || !bytes.Equal(bytesOf(kinds), bytesOf(checkKinds)) {
		t.Fatal(kinds, err)
	}
	for f, prefix := range map[int]Prefix{0: small.Prefix, 2: other.Prefix} {
		if _, ok := ResultOf(fields[f], prefix); !ok {
			t.Errorf("field %d has another form", f)
		}
	}
	if got, err := c.Restore(nil, form); err != nil || !bytes.Equal(got, sample) {
		t.Errorf("another sample: %v", err)
	}
	if !c.Current(form) {
		t.Error("it would be made anew")
	}
	c.Makers[0] = &other
	if c.Current(form) {
		t.Error("of another recipe, it stays")
	}
	form[len(form)-1] ^= 1
	if _, err := c.Restore(nil, form); !errors.Is(err, ErrDamaged) {
		t.Errorf("altered: %v", err)
	}
}
