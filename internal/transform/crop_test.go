package transform

import (
	"image"
	"testing"
)

// TestMiddleWhereNoCropFits: where none of ten tries fits, the crop is the middle, of as much as
// the nearer bound of the ratio allows.
func TestMiddleWhereNoCropFits(t *testing.T) {
	for _, c := range []struct {
		width, height int
		ratio         [2]float64
		want          image.Rectangle
	}{
		{1000, 10, [2]float64{0.5, 2}, image.Rect(490, 0, 510, 10)},
		{10, 1000, [2]float64{0.5, 2}, image.Rect(0, 490, 10, 510)},
		{1000, 10, [2]float64{3. / 4, 4. / 3}, image.Rect(493, 0, 506, 10)},
		{10, 1000, [2]float64{3. / 4, 4. / 3}, image.Rect(0, 493, 10, 506)},
		{1000, 7, [2]float64{1, 3.5}, image.Rect(488, 0, 512, 7)}, // 24.5 rounds to the even one
		// a half rounds to none
		{1, 1000, [2]float64{2, 5}, image.Rect(0, 500, 1, 500)},
		{30, 20, [2]float64{1, 2}, image.Rect(0, 0, 30, 20)},
	} {
		s := partOf([2]float64{4, 9}, c.ratio) // larger than the image
		for sample := range 5 {
			var d draws
			d.Begin(Key{Sample: sample}.Item(), 1)
			if got, _ := s.Draw(c.width, c.height, &d); got != c.want {
				t.Errorf("%d x %d, ratio %v: %v, want %v", c.width, c.height, c.ratio, got, c.want)
			}
		}
	}
}
