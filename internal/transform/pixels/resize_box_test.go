package pixels

import (
	"image"
	"testing"
)

// TestResizeBox: a window of a part's resize is that window of the whole, and a part that is all of
// the image is no part at all.
func TestResizeBox(t *testing.T) {
	var src, whole, dst Image
	src.Reset(60, 50, 3)
	for i := range src.Pix {
		src.Pix[i] = byte(i * i >> 5)
	}
	var r Resizer
	b := Part{3.5, 2.25, 41.5, 40}
	r.ResizeBox(&whole, &src, image.Point{}, 60, 50, b, 20, 17, image.Rect(0, 0, 20, 17), Bicubic)
	window := image.Rect(5, 6, 13, 17)
	need := SupportBox(60, 50, b, 20, 17, window, Bicubic)
	part := src.Sub(need)
	r.ResizeBox(&dst, &part, need.Min, 60, 50, b, 20, 17, window, Bicubic)
	want := whole.Sub(window)
	for y := range dst.Height {
		if string(dst.Row(y)) != string(want.Row(y)) {
			t.Fatalf("row %d of the window differs", y)
		}
	}
	var all, plain Image
	r.ResizeBox(&all, &src, image.Point{}, 60, 50, Part{0, 0, 60, 50}, 20, 17,
		image.Rect(0, 0, 20, 17), Lanczos)
	r.Resize(&plain, &src, 20, 17, image.Rect(0, 0, 20, 17), Lanczos)
	if string(all.Pix) != string(plain.Pix) {
		t.Error("a box of all the image is not Resize")
	}
}

// TestUsedResizerGivesWhatANewOneDoes: a Resizer that was used with slightly different arguments
// gives the same result as a new one.
func TestUsedResizerGivesWhatANewOneDoes(t *testing.T) {
	var src Image
	src.Reset(60, 50, 3)
	for i := range src.Pix {
		src.Pix[i] = byte(i * i >> 5)
	}
	type call struct {
		part          Part
		width, height int
		window        image.Rectangle
		filter        Filter
	}
	first := call{Part{3, 2, 40, 40}, 20, 17, image.Rect(2, 3, 12, 13), Bicubic}
	var used Resizer
	for name, change := range map[string]func(c *call){
		"left": func(c *call) { c.part.X = 4 }, "top": func(c *call) { c.part.Y = 2.5 },
		"width": func(c *call) {
			c.part.Width = 41
		}, "height": func(c *call) { c.part.Height = 39.5 },
		"columns": func(c *call) {
			c.width = 21
		}, "rows": func(c *call) { c.height = 18 }, "filter": func(c *call) { c.filter = Hamming },
		"window's left": func(c *call) {
			c.window.Min.X++
		}, "window's right": func(c *call) { c.window.Max.X++ },
		"window's top": func(c *call) {
			c.window.Min.Y++
		}, "window's bottom": func(c *call) { c.window.Max.Y++ },
		"window's place": func(c *call) { c.window = c.window.Add(image.Pt(1, 1)) },
	} {
		other := first
		change(&other)
		for _, c := range []call{first, other} {
			var a, b Image
			used.ResizeBox(&a, &src, image.Point{}, 60, 50, c.part, c.width, c.height, c.window,
				c.filter)
			new(Resizer).ResizeBox(&b, &src, image.Point{}, 60, 50, c.part, c.width, c.height,
				c.window, c.filter)
			if string(a.Pix) != string(b.Pix) {
				t.Errorf("another %s: %+v is not what a new Resizer gives", name, c)
			}
		}
	}
}
