package transform

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"image/gif"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hdmlp/hdmlp/internal/transform/codec"
	"github.com/hdmlp/hdmlp/internal/transform/forms"
)

// applied is what a ragged program makes of a sample: where it would go, by the sizes that alloc
// was asked for.
func applied(t testing.TB, w *Worker, src []byte, key Key) (made []byte, asked []int, err error) {
	t.Helper()
	err = w.ApplyTo(func(_, size int) ([]byte, error) {
		asked, made = append(asked, size), make([]byte, size)
		return made, nil
	}, [][]byte{src}, key)
	return made, asked, err
}

// TestRaggedEqualsFixed: an image of its own size has the pixels that a list with a fixed size
// gives of the same.
func TestRaggedEqualsFixed(t *testing.T) {
	for _, c := range []struct {
		ragged, fixed string
		width, height int // of what comes out
	}{
		{"Ragged()", "CenterCrop((80, 120))", 120, 80},
		{"ImgDecode('L'), Ragged()", "ImgDecode('L'), CenterCrop((80, 120))", 120, 80},
		{"Resize(40), Ragged()", "Resize((40, 60))", 60, 40},
		{
			"Resize(40), RandomHorizontalFlip(), Ragged()", "Resize((40, 60)), RandomHorizontalFlip()",
			60, 40,
		},
		{
			"Pad(3, fill=9), RandomVerticalFlip(1), Ragged()",
			"CenterCrop((80, 120)), Pad(3, fill=9), RandomVerticalFlip(1)", 126, 86,
		},
		{"RandomCrop((30, 20)), Ragged()", "RandomCrop((30, 20))", 20, 30},
		{"Grayscale(), Ragged()", "CenterCrop((80, 120)), Grayscale()", 120, 80},
	} {
		for _, src := range [][]byte{encodedJPEG(t, 120, 80), encodedPNG(t, 120, 80)} {
			a, b := compiled(t, c.ragged), compiled(t, c.fixed)
			v, w := a.Worker(), b.Worker()
			for sample := range 4 {
				key := Key{Seed: 5, Sample: sample}
				want := make([]byte, b.Output().Bytes())
				got, asked, err := applied(t, v, src, key)
				if err := errors.Join(err, w.Apply(want, src, key)); err != nil {
					t.Fatal(c.ragged, err)
				}
				if len(asked) != 1 || len(got) != raggedHead+len(want) {
					t.Fatalf("%s: alloc was asked for %v bytes, want once %d", c.ragged, asked,
						raggedHead+len(want))
				}
				if h, wd := binary.LittleEndian.Uint32(got),
					binary.LittleEndian.Uint32(got[4:]); int(wd) != c.width || int(h) != c.height {
					t.Errorf("%s: %d x %d, want %d x %d", c.ragged, wd, h, c.width, c.height)
				}
				if !bytes.Equal(got[raggedHead:], want) {
					t.Errorf("%s: other pixels than %s", c.ragged, c.fixed)
				}
			}
			v.Close()
			w.Close()
		}
	}
}

// TestRaggedEncoded: what is too large, or of a format that is not decoded here, comes as it is;
// what is damaged is an error.
func TestRaggedEncoded(t *testing.T) {
	var animation bytes.Buffer
	if err := gif.Encode(&animation, scene(9, 9), nil); err != nil {
		t.Fatal(err)
	}
	damaged := encodedPNG(t, 50, 40)
	damaged = damaged[:len(damaged)/2]
	for _, c := range []struct {
		name    string
		src     []byte
		encoded bool
		fails   error
	}{
		{"as large as allowed", encodedJPEG(t, 50, 40), false, nil},
		{"larger", encodedJPEG(t, 50, 41), true, nil},
		{"a GIF", animation.Bytes(), true, nil},
		{"damaged", damaged, false, codec.ErrTruncated},
	} {
		w := compiled(t, fmt.Sprintf("Ragged(largest=%d)", 50*40*3)).Worker()
		got, _, err := applied(t, w, c.src, Key{})
		switch {
		case c.fails != nil:
			if !errors.Is(err, c.fails) {
				t.Errorf("%s: %v, want %v", c.name, err, c.fails)
			}
		case err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.encoded:
			if binary.LittleEndian.Uint64(got) != 0 || !bytes.Equal(got[raggedHead:], c.src) {
				t.Errorf("%s: %d bytes that begin with %x, want the file's", c.name, len(got),
					got[:raggedHead])
			}
		case len(got) != raggedHead+50*40*3:
			t.Errorf("%s: %d bytes", c.name, len(got))
		}
		w.Close()
	}
}

// TestRaggedRoom: the error for missing room is returned, before anything is decoded.
func TestRaggedRoom(t *testing.T) {
	w := compiled(t, "Ragged()").Worker()
	defer w.Close()
	full := errors.New("full")
	cut := encodedPNG(t, 50, 40)
	alloc := func(int, int) ([]byte, error) { return nil, full }
	err := w.ApplyTo(alloc, [][]byte{cut[:len(cut)/2]}, Key{})
	if !errors.Is(err, full) {
		t.Errorf("%v, want %v", err, full)
	}
}

// TestExpected: what samples are thought to become bounds nothing, but should be near.
func TestExpected(t *testing.T) {
	for text, want := range map[string][2]float64{
		"Ragged()":                    {3 * 1e5, 12 * 1e5},
		"Resize(100), Ragged()":       {3e4, 6e4},
		"CenterCrop(100), Ragged()":   {30008, 30008},
		"CenterCrop(100), ToTensor()": {120000, 120000},
		"Ragged(largest=1000)":        {100008, 100008}, // as it is
		"ImgDecode('L'), Ragged()":    {1e5, 4e5},
	} {
		if got := compiled(t, text).Expected(1e5); got < want[0] || got > want[1] {
			t.Errorf("%s: %g bytes, want %g to %g", text, got, want[0], want[1])
		}
	}
}

// TestRaggedForms: of a form comes what comes of its file, with what that says beside its pixels;
// what comes encoded needs the file of a JPEG.
func TestRaggedForms(t *testing.T) {
	comment := func(src []byte) []byte { // with a comment, and turned by EXIF
		exif := "\xff\xe1\x00\x22Exif\x00\x00MM\x00*\x00\x00\x00\x08\x00\x01" +
			"\x01\x12\x00\x03\x00\x00\x00\x01\x00\x06\x00\x00\x00\x00\x00\x00"
		return slices.Concat(src[:2], []byte(exif), []byte("\xff\xfe\x00\x07words"), src[2:])
	}
	images := map[string][]byte{"PNG": encodedPNG(t, 90, 70)}
	for _, name := range []string{"lossy.webp", "lossless.webp"} {
		images[name] = fileOf(t, name)
	}
	if exactJPEG {
		for _, name := range []string{"restart-1.jpg", "restart-progressive.jpg", "restart-gray.jpg"} {
			images[name] = fileOf(t, name)
			images["described "+name] = comment(fileOf(t, name))
		}
	}
	var c forms.Converter
	defer c.Close()
	for _, list := range []string{
		"Ragged()", "ImgDecode('L'), Ragged()", "Resize(40), RandomHorizontalFlip(), Ragged()",
		"Ragged(largest=100)", "ImgDecode(orient=True), Ragged()",
	} {
		w := compiled(t, list).Worker()
		for name, src := range images {
			form, err := c.Convert(nil, src)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			info, err := forms.Read(form)
			if err != nil {
				t.Fatal(err)
			}
			want, _, err := applied(t, w, src, Key{Seed: 5})
			if err != nil {
				t.Fatalf("%s: %s: %v", list, name, err)
			}
			w.Form(info.Kind)
			got, _, err := applied(t, w, form, Key{Seed: 5})
			w.Form(forms.AsRead)
			encoded := binary.LittleEndian.Uint32(want) == 0
			if encoded && info.Kind != forms.Decoded {
				if err == nil {
					t.Errorf("%s: %s: the form suffices for the file", list, name)
				}
				continue
			}
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: %s: %v, or other bytes of the form", list, name, err)
			}
		}
		w.Close()
	}
}

// fileOf returns an image of the codec's tests.
func fileOf(t *testing.T, name string) []byte {
	t.Helper()
	src, err := os.ReadFile(filepath.Join("codec", "testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return src
}
