package targets

import (
	"bytes"
	"fmt"
	"image"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
	"pgregory.net/rapid"
)

// moved applies a move to a mask, pixel by pixel.
func moved(m [][]int, width, height int, of func(x, y int) (int, int), outside int) [][]int {
	made := make([][]int, height)
	for y := range made {
		for x := range width {
			fromX, fromY := of(x, y)
			v := outside
			if fromY >= 0 && fromY < len(m) && fromX >= 0 && fromX < len(m[0]) {
				v = m[fromY][fromX]
			}
			made[y] = append(made[y], v)
		}
	}
	return made
}

// TestMasksAreMovedOnce checks that what is gathered at the end is what each move makes of the
// result of the one before.
func TestMasksAreMovedOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 9)
		width, height := size.Draw(t, "width"), size.Draw(t, "height")
		wide := rapid.Bool().Draw(t, "wide")
		var mask pixels.Image
		mask.Reset(width, height, 1)
		if wide {
			mask.Reset(width, height, 2)
		}
		want := make([][]int, height)
		for y := range want {
			for x := range width {
				v := 10*y + x
				if wide {
					v += 300
					mask.Row(y)[2*x], mask.Row(y)[2*x+1] = byte(v), byte(v>>8)
				} else {
					mask.Row(y)[x] = byte(v)
				}
				want[y] = append(want[y], v)
			}
		}
		var s Set
		s.Begin(width, height)
		for range rapid.IntRange(0, 6).Draw(t, "moves") {
			w, h := s.Size()
			switch rapid.IntRange(0, 4).Draw(t, "move") {
			case 0:
				s.Flip(false)
				want = moved(want, w, h, func(x, y int) (int, int) { return w - 1 - x, y }, 0)
			case 1:
				s.Flip(true)
				want = moved(want, w, h, func(x, y int) (int, int) { return x, h - 1 - y }, 0)
			case 2:
				near := rapid.IntRange(-3, 5)
				r := image.Rect(0, 0, size.Draw(t, "w"), size.Draw(t, "h")).Add(
					image.Pt(near.Draw(t, "left"), near.Draw(t, "top")))
				s.Crop(r)
				want = moved(want, r.Dx(), r.Dy(),
					func(x, y int) (int, int) { return x + r.Min.X, y + r.Min.Y }, 0)
			case 3:
				edge := rapid.IntRange(0, 3)
				r := image.Rect(-edge.Draw(t, "l"), -edge.Draw(t, "t"), w+edge.Draw(t, "r"),
					h+edge.Draw(t, "b"))
				fill := rapid.IntRange(1, 255).Draw(t, "fill")
				if err := s.Pad(r, "constant", fill); err != nil {
					t.Fatal(err)
				}
				want = moved(want, r.Dx(), r.Dy(),
					func(x, y int) (int, int) { return x + r.Min.X, y + r.Min.Y }, fill)
			case 4:
				toW, toH := size.Draw(t, "w"), size.Draw(t, "h")
				s.Resize(toW, toH)
				want = moved(want, toW, toH, func(x, y int) (int, int) {
					return int(float32(x) * (float32(w) / float32(toW))),
						int(float32(y) * (float32(h) / float32(toH)))
				}, 0)
			}
		}
		w, h := s.Size()
		need := s.Need()
		part := mask.Sub(need)
		types := []pixels.Type{pixels.Uint16, pixels.Int64, pixels.Float32}
		if !wide {
			types = append(types, pixels.Uint8)
		}
		kind := rapid.SampledFrom(types).Draw(t, "type")
		dst := make([]byte, w*h*kind.Size())
		s.Mask(dst, &part, need.Min, kind, 1<<16-1)
		expected := make([]byte, len(dst))
		for y, row := range want {
			for x, v := range row {
				kind.Put(expected[(y*w+x)*kind.Size():], v)
			}
		}
		if !bytes.Equal(dst, expected) {
			t.Fatalf("%v\nwant\n%v", dst, expected)
		}
	})
}

// TestBoxesSayWhatIsWrong checks that errors name the key, in each format.
func TestBoxesSayWhatIsWrong(t *testing.T) {
	for text, says := range map[string]string{
		`[]`:                             "boxes are a JSON object",
		`{"boxes": [[Infinity, 1,1,1]]}`: "NaN or Infinity",
		`{"boxes": [], "labels": [], "area": []}`:                            `the key "area"`,
		`{"boxes": null, "labels": []}`:                                      `"boxes" must be`,
		`{"boxes": [], "labels": null}`:                                      `"labels" must be`,
		`{"boxes": [[1,2,3,4]], "labels": [null]}`:                           `[0] = null: must be`,
		`{"boxes": [[1,2,3,4]], "labels": [1.5]}`:                            `[0] = 1.5: must be`,
		`{"boxes": [[1,2,3,4,5]], "labels": [1]}`:                            "have four numbers",
		`{"boxes": [[3,2,1,4]], "labels": [1]}`:                              "negative width",
		`{"boxes": [[5,5,-3,4]], "labels": [1], "format": "CXCYWH"}`:         "negative width",
		`{"boxes": [[50,5,3,4]], "labels": [1], "format": "xywh"}`:           "outside of its image",
		`{"boxes": [[1,2,3,4]], "labels": [1], "format": 3}`:                 `"format" is 3`,
		`{"boxes": [[1,2,3,1e39]], "labels": [1]}`:                           "not finite",
		`{"boxes": [[1,2,3,4],[9,9,9,9]], "labels": [1,2], "format":"XYXY"}`: "",
	} {
		var b Boxes
		err := b.Parse([]byte(text), 20, 10)
		if says == "" && err == nil && len(b.list) == 2 {
			continue
		}
		if says == "" || err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}
}

// TestFormatsAgree checks that boxes of all formats stay the same boxes.
func TestFormatsAgree(t *testing.T) {
	corner := rapid.Float32Range(0, 50)
	rapid.Check(t, func(t *rapid.T) {
		x, y := corner.Draw(t, "x"), corner.Draw(t, "y")
		w, h := corner.Draw(t, "w"), corner.Draw(t, "h")
		var sets []*Set
		for f := range Formats {
			s := &Set{Boxes: &Boxes{}}
			s.Begin(100, 100)
			s.Boxes = &Boxes{Format: XYXY, list: [][4]float32{{x, y, x + w, y + h}}}
			s.Boxes.labels = []int64{7}
			s.Convert(Format(f))
			sets = append(sets, s)
		}
		r := image.Rect(10, 5, 80, 90)
		for _, s := range sets {
			s.Flip(false)
			s.Crop(r)
			s.Resize(35, 170)
			s.Flip(true)
			s.Convert(XYXY)
		}
		want := sets[0].Boxes.list[0]
		for _, s := range sets[1:] {
			for i, v := range s.Boxes.list[0] {
				if d := v - want[i]; d > 0.01 || d < -0.01 {
					t.Fatalf("%v, want %v", s.Boxes.list[0], want)
				}
			}
		}
	})
}

// TestNothingMovesWithoutASet checks that an image alone has no targets.
func TestNothingMovesWithoutASet(t *testing.T) {
	var s *Set
	s.Flip(true)
	s.Crop(image.Rect(0, 0, 1, 1))
	s.Resize(3, 4)
	s.Clamp()
	s.Convert(XYWH)
	s.Sanitize(1, 1)
	if err := s.Pad(image.Rect(-1, 0, 2, 2), "edge", 0); err != nil {
		t.Fatal(err)
	}
}

// TestBordersOfBoxesAreConstant checks what torchvision refuses.
func TestBordersOfBoxesAreConstant(t *testing.T) {
	for i, c := range []struct {
		mode  string
		boxes bool
		edge  int
		fails bool
	}{
		{"edge", true, 1, true},
		{"edge", false, 9, false},
		{"reflect", false, 4, true},
		{"reflect", false, 3, false},
		{"symmetric", false, 5, true},
		{"symmetric", false, 4, false},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			var s Set
			s.Begin(4, 6)
			if c.boxes {
				s.Boxes = &Boxes{}
			}
			if err := s.Pad(image.Rect(-c.edge, 0, 4, 6), c.mode, 0); (err != nil) != c.fails {
				t.Error(err)
			}
		})
	}
}
