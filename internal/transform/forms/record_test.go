package forms

import (
	"bytes"
	"errors"
	"image"
	"image/color"
	"testing"

	"github.com/hdmlp/hdmlp/internal/transform/codec"
)

// packedOf returns a packed sample of fields, and these as parts of it.
func packedOf(fields ...[]byte) (sample []byte, parts [][]byte) {
	for _, f := range fields {
		if f != nil {
			for len(sample)%recordAlign != 0 {
				sample = append(sample, 0)
			}
			sample = append(sample, f...)
		}
	}
	at := 0
	for _, f := range fields {
		if f == nil {
			parts = append(parts, nil)
			continue
		}
		at = (at + recordAlign - 1) / recordAlign * recordAlign
		parts = append(parts, sample[at:at+len(f):at+len(f)])
		at += len(f)
	}
	return sample, parts
}

// TestRecords: a Record holds each field as it is, or in its form, and gives the sample.
func TestRecords(t *testing.T) {
	if !canConvert {
		t.Skip("builds without cgo make no forms of JPEGs")
	}
	var c Converter
	defer c.Close()
	baseline, progressive := jpegNamed(t, "restart-1"), jpegNamed(t, "restart-progressive")
	text := []byte("some text")
	r := image.Rect(0, 0, 40, 30)
	levels, wider := image.NewGray(r), image.NewGray16(r)
	indices := image.NewPaletted(r, color.Palette{color.Gray{3}, color.NRGBA{9, 8, 7, 255}})
	for i := range levels.Pix {
		levels.Pix[i], wider.Pix[2*i] = byte(i*i), byte(i*i)
		indices.Pix[i] = byte(i * i / 7 % 2)
	}
	grain, palette := encoded(t, levels), encoded(t, indices)
	wide, flat := encoded(t, wider), encoded(t, image.NewGray(image.Rect(0, 0, 200, 100)))
	for name, test := range map[string]struct {
		fields   [][]byte
		converts []bool
		kinds    []Kind // nil: no form
		exact    bool
	}{
		"an image and a text": {
			[][]byte{baseline, text}, []bool{true, false}, []Kind{Exact, AsRead}, true,
		},
		"two images, of which one stays": {
			[][]byte{baseline, baseline}, []bool{false, true}, []Kind{AsRead, Exact}, true,
		},
		"a field that is missing, and an empty one": {
			[][]byte{nil, {}, baseline}, []bool{true, true, true}, []Kind{AsRead, AsRead, Exact}, true,
		},
		"an image that does not give its file": {
			[][]byte{progressive, text}, []bool{true, false}, []Kind{Pixels, AsRead}, false,
		},
		"a PNG": {
			[][]byte{text, read(t, "testdata", "small.png")},
			[]bool{false, true},
			[]Kind{AsRead, Decoded},
			true,
		},
		"a PNG and masks": {
			[][]byte{grain, palette, wide, flat, grain},
			[]bool{true, true, true, true, false},
			[]Kind{Decoded, AsRead, AsRead, AsRead, AsRead},
			true,
		},
		"one with a palette, alone": {
			[][]byte{text, palette}, []bool{false, true}, []Kind{AsRead, Decoded}, true,
		},
		"a flat one, alone": {
			[][]byte{text, flat}, []bool{false, true}, []Kind{AsRead, Decoded}, true,
		},
		"masks alone":        {[][]byte{palette, flat}, []bool{true, true}, nil, false},
		"no image":           {[][]byte{text, text}, []bool{true, true}, nil, false},
		"one that is not to": {[][]byte{baseline, text}, []bool{false, true}, nil, false},
	} {
		sample, parts := packedOf(test.fields...)
		form, err := c.ConvertRecord([]byte("before"), sample, parts, test.converts)
		if test.kinds == nil {
			if !errors.Is(err, codec.ErrNotPacked) || string(form) != "before" {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		form = form[len("before"):]
		if most := c.RecordSize(parts, test.converts); int64(len(form)) > most {
			t.Errorf("%s: %d bytes, and %d at most", name, len(form), most)
		}
		checkRecord(t, &c, name, form, parts, test.kinds)
		info, err := Read(form)
		if err != nil || info.Kind != Record || info.Size != int64(len(sample)) {
			t.Errorf("%s: %+v, %v", name, info, err)
		}
		got, err := c.Restore([]byte("before"), form)
		switch {
		case !test.exact:
			if !errors.Is(err, codec.ErrNotPacked) || string(got) != "before" {
				t.Errorf("%s: restored: %v", name, err)
			}
		case err != nil || string(got) != "before"+string(sample):
			t.Errorf("%s: restored other bytes: %v", name, err)
		}
	}
}

// checkRecord checks that the fields of a Record are of these kinds, and those of a sample.
func checkRecord(t *testing.T, c *Converter, name string, form []byte, parts [][]byte,
	kinds []Kind,
) {
	t.Helper()
	fields, of, err := Fields(nil, nil, form)
	if err != nil || len(fields) != len(parts) || !bytes.Equal(bytesOf(of), bytesOf(kinds)) {
		t.Fatalf("%s: %d fields of the kinds %v: %v", name, len(fields), of, err)
	}
	for f, field := range fields {
		if (field == nil) != (parts[f] == nil) {
			t.Errorf("%s: field %d: %v", name, f, field)
		}
		want := parts[f]
		if of[f] != AsRead {
			if want, err = c.Convert(nil, parts[f]); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(field, want) {
			t.Errorf("%s: field %d has other bytes", name, f)
		}
	}
}

func bytesOf(kinds []Kind) (b []byte) {
	for _, k := range kinds {
		b = append(b, byte(k))
	}
	return b
}

// TestDamagedRecords: bytes that are no Record are refused, and a Record is no form of an image.
func TestDamagedRecords(t *testing.T) {
	if !canConvert {
		t.Skip("builds without cgo make no forms of JPEGs")
	}
	var c Converter
	defer c.Close()
	var d codec.Decoder
	defer d.Close()
	sample, parts := packedOf(jpegNamed(t, "restart-1"), []byte("some text"))
	form, err := c.ConvertRecord(nil, sample, parts, []bool{true, false})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Header(&d, form); !errors.Is(err, ErrDamaged) {
		t.Errorf("the header of a Record: %v", err)
	}
	if _, err := Decode(&d, nil, form, codec.Want{}); !errors.Is(err, ErrDamaged) {
		t.Errorf("the pixels of a Record: %v", err)
	}
	if _, _, err := Fields(nil, nil, sample); !errors.Is(err, ErrDamaged) {
		t.Errorf("fields of a sample: %v", err)
	}
	for at := range form {
		altered := bytes.Clone(form)
		altered[at] ^= 1
		if _, err := c.Restore(nil, altered); err == nil {
			t.Fatalf("byte %d is altered without an error", at)
		}
		if _, err := c.Restore(nil, form[:at]); err == nil {
			t.Fatalf("%d bytes are a form", at)
		}
	}
	if _, _, err := Fields(nil, nil, append(bytes.Clone(form), 0)); !errors.Is(err, ErrDamaged) {
		t.Errorf("a byte more: %v", err)
	}
}

// FuzzRecord: bytes are fields, or refused.
func FuzzRecord(f *testing.F) {
	if !canConvert {
		f.Skip("builds without cgo make no forms of JPEGs")
	}
	var c Converter
	defer c.Close()
	file := read(f, "..", "codec", "testdata", "restart-1.jpg")
	sample, parts := packedOf(file, nil, []byte("some text"))
	form, err := c.ConvertRecord(nil, sample, parts, []bool{true, true, false})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(form)
	f.Add(form[:60])
	f.Fuzz(func(t *testing.T, form []byte) {
		fields, kinds, err := Fields(nil, nil, form)
		sum := 0
		for _, field := range fields {
			sum += len(field)
		}
		switch {
		case err != nil && !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrVersion):
			t.Fatal(err)
		case err == nil && (len(kinds) != len(fields) ||
			sum+fixedRecord+entrySize*len(fields) != len(form)):
			t.Fatalf("%d bytes of %d, %d kinds", sum, len(form), len(kinds))
		}
		var c Converter
		_, _ = c.restoreRecord(nil, form)
	})
}
