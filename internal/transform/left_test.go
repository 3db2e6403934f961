package transform

import (
	"bytes"
	"errors"
	"image"
	stdpng "image/png"
	"testing"

	"github.com/hdmlp/hdmlp/internal/transform/codec"
	"github.com/hdmlp/hdmlp/internal/transform/left"
)

// program compiles a description.
func program(t *testing.T, description string) *Program {
	t.Helper()
	p, err := Compile([]byte(description))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestImagesAreLeftToTheReceiver: with leave, what only other decoders decode is left, and nothing
// else; without it, it is an error.
func TestImagesAreLeftToTheReceiver(t *testing.T) {
	leave := program(t, `[{"name": "Resize", "size": [8, 8], "decode": {"leave": true}}]`).Worker()
	also := program(t, `[{"name": "ImgDecode", "leave": true}, {"name": "CenterCrop", "size": 8}]`).
		Worker()
	refuse := program(t, `[{"name": "Resize", "size": [8, 8]}]`).Worker()
	whole := encodedJPEG(t, 40, 30)
	for name, c := range map[string]struct {
		src  []byte
		left bool
		kind error
	}{
		"a BMP":            {[]byte("BM and so on"), true, codec.ErrFormat},
		"no image":         {[]byte("what is this"), true, codec.ErrFormat},
		"a truncated JPEG": {whole[:len(whole)/2], false, codec.ErrTruncated},
	} {
		dst := make([]byte, leave.program.Output().Bytes())
		for _, w := range []*Worker{leave, also} {
			err := w.Apply(dst, c.src, Key{})
			var found *left.Error
			if !errors.Is(err, c.kind) || errors.As(err, &found) != c.left {
				t.Errorf("%s: %v", name, err)
			}
			if err := w.Apply(dst, whole, Key{}); err != nil {
				t.Error(err)
			}
		}
		err := refuse.Apply(dst, c.src, Key{})
		var found *left.Error
		if !errors.Is(err, c.kind) || errors.As(err, &found) {
			t.Errorf("%s, without leave: %v", name, err)
		}
	}
}

// TestArgumentsOfTheImpliedDecoding: the first entry of a list has those of an implied ImgDecode,
// and nothing else has any.
func TestArgumentsOfTheImpliedDecoding(t *testing.T) {
	p := program(t, `[{"name": "Resize", "size": [8, 8], "decode": {"max_pixels": 100}}]`)
	if p.known.most != 100 || p.Names()[0] != "ImgDecode" || len(p.Names()) != 2 {
		t.Errorf("%v, at most %d pixels", p.Names(), p.known.most)
	}
	for _, wrong := range []string{
		`[{"name": "Resize", "size": [8, 8], "decode": 7}]`,
		`[{"name": "Resize", "size": [8, 8], "decode": {"max_pixels": 0}}]`,
		`[{"name": "Resize", "size": [8, 8], "decode": {"name": "ImgDecode"}}]`,
		`[{"name": "ImgDecode", "decode": {}}, {"name": "Resize", "size": [8, 8]}]`,
		`[{"name": "Resize", "size": [8, 8]}, {"name": "Pad", "padding": 1, "decode": {}}]`,
	} {
		if _, err := Compile([]byte(wrong)); err == nil {
			t.Errorf("%s is accepted", wrong)
		}
	}
}

// TestImagesOfOtherModesAreLeft: with unconverted, what PIL opens in another mode than the one
// asked for is left, and nothing else.
func TestImagesOfOtherModesAreLeft(t *testing.T) {
	var b bytes.Buffer
	if err := stdpng.Encode(&b, image.NewGray(image.Rect(0, 0, 40, 30))); err != nil {
		t.Fatal(err)
	}
	gray, colour := b.Bytes(), encodedJPEG(t, 40, 30)
	for mode, other := range map[string][]byte{"RGB": gray, "L": colour} {
		w := program(t, `[{"name": "ImgDecode", "mode": "`+mode+`", "leave": true, "unconverted": true},
			{"name": "CenterCrop", "size": 8}]`).Worker()
		dst := make([]byte, w.program.Output().Bytes())
		for _, src := range [][]byte{gray, colour} {
			var found *left.Error
			err := w.Apply(dst, src, Key{})
			if expected := &src[0] == &other[0]; errors.As(err, &found) != expected ||
				(err != nil) != expected {
				t.Errorf("%s: %v", mode, err)
			}
		}
	}
}
