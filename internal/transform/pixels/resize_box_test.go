package pixels

import (
	"image"
	"testing"
)

// TestResizeBox: a window of a part's resize is that window of the whole, and a part that is all of the image is no
// part at all.
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
	r.ResizeBox(&all, &src, image.Point{}, 60, 50, Part{0, 0, 60, 50}, 20, 17, image.Rect(0, 0, 20, 17), Lanczos)
	r.Resize(&plain, &src, 20, 17, image.Rect(0, 0, 20, 17), Lanczos)
	if string(all.Pix) != string(plain.Pix) {
		t.Error("a box of all the image is not Resize")
	}
}
