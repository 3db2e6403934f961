package transform

import (
	"bytes"
	"errors"
	"image"
	"image/color"
	stdpng "image/png"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
	"github.com/hdmlp/hdmlp/internal/transform/targets"
)

// maskPNG is a mask of 20 x 10 pixels, whose number is that of the column.
func maskPNG(t testing.TB, width, height int) []byte {
	m := image.NewPaletted(image.Rect(0, 0, width, height), make(color.Palette, 64))
	for i := range m.Palette {
		m.Palette[i] = color.RGBA{byte(i), 0, 0, 255}
	}
	for i := range m.Pix {
		m.Pix[i] = byte(i % width)
	}
	var b bytes.Buffer
	if err := stdpng.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

var three = []targets.Input{
	{Kind: "image"}, {Kind: "mask", Type: pixels.Uint8}, {Kind: "boxes"},
}

func joined(t *testing.T, text string, list []targets.Input) *Program {
	t.Helper()
	description, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	p, err := CompileJoint(description, list, false)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestJointListsAreChecked: what cannot be applied to several fields is refused, with the reason.
func TestJointListsAreChecked(t *testing.T) {
	for text, says := range map[string]string{
		`RandomRotation(10), ToTensor()`:                     "it is for images alone",
		`RandomApply([RandomAffine(10)]), ToTensor()`:        "it is for images alone",
		`RandAugment(), ToTensor()`:                          "it is for images alone",
		`CenterCrop(4)`:                                      "needs ToTensor",
		`Pad(2, fill=(1, 2, 3)), ToTensor()`:                 "mask_fill",
		`Pad(2, mask_fill=300), ToTensor()`:                  "mask_fill",
		`ToTensor(), RandomErasing()`:                        "it is for images alone",
		`ConvertMaskDtype("uint8"), CenterCrop(3), Ragged()`: "it is for images alone",
	} {
		description, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = CompileJoint(description, three, false); err == nil ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}
	description, err := Parse(`SanitizeBoundingBoxes(), CenterCrop(3)`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Compile(description); err == nil || !strings.Contains(err.Error(), "kinds=") {
		t.Error(err)
	}
	alone := []targets.Input{{Kind: "mask", Type: pixels.Uint8}}
	for text, list := range map[string][]targets.Input{
		`CenterCrop(3)`: {{Kind: "boxes"}}, `ColorJitter(1), CenterCrop(3)`: alone,
		`Resize(3), ToTensor()`:    {{Kind: "image"}, {Kind: "image"}},
		`Resize(4), ToTensor()`:    {{Kind: "image"}, {Kind: "video"}},
		`ConvertMaskDtype("int8")`: alone,
	} {
		if description, err := Parse(text); err == nil {
			if _, err := CompileJoint(description, list, false); err == nil {
				t.Errorf("%s of %v compiles", text, list)
			}
		}
	}
}

// TestJointSamples: each result has the memory that it asked for, errors name the field, and what
// comes out does not depend on what the worker did before.
func TestJointSamples(t *testing.T) {
	p := joined(t, `RandomCrop((6, 8)), RandomHorizontalFlip(), ToTensor(dtype="uint8"),
		ConvertMaskDtype("int64")`, three)
	w := p.Worker()
	defer w.Close()
	src, mask := encodedPNG(t, 20, 10), maskPNG(t, 20, 10)
	boxes := []byte(`{"boxes": [[1, 1, 19, 9], [0, 0, 1, 1]], "labels": [4, 5]}`)
	apply := func(srcs [][]byte, epoch int) (made [3][]byte, err error) {
		err = w.ApplyTo(func(i, size int) ([]byte, error) {
			made[i] = make([]byte, size)
			return made[i], nil
		}, srcs, Key{Seed: 1, Epoch: epoch})
		return made, err
	}
	sound := [][]byte{src, mask, boxes}
	first, err := apply(sound, 3)
	if err != nil {
		t.Fatal(err)
	}
	if got := []int{len(first[0]), len(first[1]), len(first[2])}; got[0] != 3*6*8 ||
		got[1] != 8*6*8 || got[2] != 16+2*24 {
		t.Fatalf("%d bytes", got)
	}
	for field, bad := range [][][]byte{
		{src[:60], mask, boxes},
		{src, maskPNG(t, 20, 11), boxes},
		{src, mask, boxes[:20]},
		{src, src, boxes},
	} {
		_, err := apply(bad, 0)
		var of *targets.InputError
		if !errors.As(err, &of) || of.Input != min(field, field%3+field/3) {
			t.Errorf("field %d: %v", field, err)
		}
	}
	again, err := apply(sound, 3)
	if err != nil {
		t.Fatal(err)
	}
	for i := range first {
		if !bytes.Equal(first[i], again[i]) {
			t.Errorf("result %d differs", i)
		}
	}
	full := errors.New("full")
	err = w.ApplyTo(func(int, int) ([]byte, error) { return nil, full }, sound, Key{})
	if !errors.Is(err, full) {
		t.Error(err)
	}
}

// TestJointSizes: without a fixed size each result says its own.
func TestJointSizes(t *testing.T) {
	p := joined(t, `RandomHorizontalFlip(1), ToTensor(dtype="uint8")`, three[:2])
	if !p.Varies() || p.Expected(1000) < 1000 {
		t.Errorf("%v bytes are expected", p.Expected(1000))
	}
	w := p.Worker()
	defer w.Close()
	var made [2][]byte
	err := w.ApplyTo(func(i, size int) ([]byte, error) {
		made[i] = make([]byte, size)
		return made[i], nil
	}, [][]byte{encodedPNG(t, 20, 10), maskPNG(t, 20, 10)}, Key{})
	if err != nil || len(made[0]) != 8+3*200 || len(made[1]) != 8+200 {
		t.Fatalf("%d and %d bytes: %v", len(made[0]), len(made[1]), err)
	}
	if made[1][0] != 10 || made[1][4] != 20 || made[1][8] != 19 {
		t.Errorf("%v", made[1][:9])
	}
}
