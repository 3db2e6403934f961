package transform

import (
	"bytes"
	stdpng "image/png"
	"strings"
	"testing"
)

// levels returns the pixels of a PNG file, channels last, or first.
func levels(t *testing.T, file []byte, planar bool) []byte {
	t.Helper()
	m, err := stdpng.Decode(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	width, height := m.Bounds().Dx(), m.Bounds().Dy()
	made := make([]byte, 3*width*height)
	for y := range height {
		for x := range width {
			r, g, b, _ := m.At(x, y).RGBA()
			for c, v := range []uint32{r, g, b} {
				at := 3*(y*width+x) + c
				if planar {
					at = c*width*height + y*width + x
				}
				made[at] = byte(v >> 8)
			}
		}
	}
	return made
}

// TestPixelsAreThoseOfAnImage: every list makes of pixels what it makes of a file that has them.
func TestPixelsAreThoseOfAnImage(t *testing.T) {
	const width, height = 40, 33
	file := encodedPNG(t, width, height)
	for _, list := range []string{
		"ToTensor()", "CenterCrop(20)", "RandomCrop(32, padding=4), RandomHorizontalFlip(p=1)",
		"Resize((17, 23)), ToTensor()", "RandomResizedCrop(24), ToTensor(), Normalize(0.5, 0.2)",
		"ColorJitter(0.4, 0.4, 0.4, 0.1), CenterCrop(30)", "TrivialAugmentWide(), ToTensor()",
		"RandomVerticalFlip(p=1), Grayscale(), ToTensor()", "Pad(3, padding_mode='reflect')",
		"RandomCrop(30), ToTensor(), RandomErasing(p=1)",
		"Views([RandomCrop(16), [ColorJitter(0.5), CenterCrop(20)]])",
	} {
		// A PNG's size is known once it is read, and so is nothing of a list that keeps it.
		sized := "RandomCrop((33, 40)), " + list
		for _, planar := range []bool{false, true} {
			first := "Pixels(40, 33), "
			if planar {
				first = "Pixels(40, 33, layout='CHW'), "
			}
			src := levels(t, file, planar)
			kept := bytes.Clone(src)
			stored, encoded := compiled(t, first+sized).Worker(), compiled(t, sized).Worker()
			for epoch := range 4 {
				key := Key{Seed: 3, Epoch: epoch, Sample: 1}
				got, want := make([]byte, stored.program.bytes), make([]byte, encoded.program.bytes)
				if err := stored.Apply(got, src, key); err != nil {
					t.Fatalf("%s: %v", list, err)
				}
				if err := encoded.Apply(want, file, key); err != nil {
					t.Fatalf("%s: %v", list, err)
				}
				if !bytes.Equal(got, want) {
					t.Errorf("%s, planar %v, epoch %d: another result", list, planar, epoch)
				}
			}
			if !bytes.Equal(src, kept) {
				t.Errorf("%s, planar %v: the sample changed", list, planar)
			}
			stored.Close()
			encoded.Close()
		}
	}
}

func TestGrayPixels(t *testing.T) {
	w := compiled(t, "Pixels(3, 2, 1), RandomHorizontalFlip(p=1), ToTensor(dtype='uint8')").Worker()
	defer w.Close()
	dst := make([]byte, 6)
	if err := w.Apply(dst, []byte{1, 2, 3, 4, 5, 6}, Key{}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(dst, []byte{3, 2, 1, 6, 5, 4}) {
		t.Errorf("%v", dst)
	}
}

func TestBytesStay(t *testing.T) {
	p := compiled(t, "Reshape(1, 1, 3000001, 'uint8')")
	w := p.Worker()
	defer w.Close()
	src, dst := make([]byte, 3000001), make([]byte, 3000001)
	src[3000000] = 7
	if err := w.Apply(dst, src, Key{}); err != nil || !bytes.Equal(dst, src) {
		t.Error(err)
	}
}

// TestSamplesOfAnotherLength: nothing is read beyond a sample, nor left out without a word.
func TestSamplesOfAnotherLength(t *testing.T) {
	for _, list := range []string{
		"Pixels(2, 2), ToTensor()", "Pixels(2, 2, layout='CHW'), ToTensor()",
	} {
		w := compiled(t, list).Worker()
		for _, n := range []int{0, 11, 13} {
			dst := make([]byte, w.program.bytes)
			err := w.Apply(dst, make([]byte, n), Key{})
			if err == nil || !strings.Contains(err.Error(), "the sample has") {
				t.Errorf("%s of %d bytes: %v", list, n, err)
			}
		}
		w.Close()
	}
}

func TestBadPixels(t *testing.T) {
	for list, want := range map[string]string{
		"Pixels(2, 2, 2)":                    "it must be 1 or 3",
		"Pixels(0, 2)":                       "width",
		"Pixels(8193, 3)":                    "width",
		"CenterCrop(2), Pixels(2, 2)":        "must come first",
		"Pixels(8, 8), RandomCrop(9)":        "cannot be cut from",
		"Pixels(8, 8), Ragged(1)":            "have one size",
		"Pixels(8, 8), ImgDecode()":          "must come first",
		"Pixels(8, 8, layout='CWH'), Pad(1)": "layout",
	} {
		description, err := Parse(list)
		if err == nil {
			_, err = Compile(description)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", list, err, want)
		}
	}
}
