package transform

import (
	"image"
	"math"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// RandomResizedCrop crops a part of random area and aspect ratio and resizes it.
//
//	size           [height, width], or a whole number for both
//	scale          [least, most] of the part's area, as a share of the image's
//	ratio          [least, most] of width / height; its logarithm is uniform
//	interpolation  as Resize's; or a list of such names, of which one is drawn for each sample
//	antialias, pillow  as Resize's
var randomResizedCrop = kind{
	name: "RandomResizedCrop",
	params: []param{
		{"size", ""},
		{"scale", "[0.08, 1]"},
		{"ratio", "[0.75, 1.3333333333333333]"},
		{"interpolation", `"bilinear"`},
		{"antialias", "true"},
		{"pillow", "12"},
	},
	build: func(a *arguments) step {
		s := randomPart{filters: a.filters("interpolation"), order: a.order("pillow")}
		a.antialias("antialias")
		s.height, s.width = a.size("size")
		s.scale[0], s.scale[1] = a.pair("scale", 0, 1e6)
		s.ratio[0], s.ratio[1] = a.pair("ratio", 1e-6, 1e6)
		return s
	},
}

type randomPart struct {
	width, height int
	scale, ratio  [2]float64
	filters       []pixels.Filter // one is drawn per sample if there are several
	order         pixels.Order
}

func (s randomPart) follow(k *known) error {
	if err := k.image(); err != nil {
		return err
	}
	k.fixed(s.width, s.height)
	return nil
}

func (s randomPart) apply(v *view, d *draws) error {
	width, height := v.size()
	part := s.part(width, height, d)
	drawn := []Param{
		{"top", float64(part.Min.Y)},
		{"left", float64(part.Min.X)},
		{"height", float64(part.Dy())},
		{"width", float64(part.Dx())},
	}
	filter := s.filters[0]
	if n := len(s.filters); n > 1 {
		i := d.below(n)
		filter, drawn = s.filters[i], append(drawn, Param{"interpolation", float64(i)})
	}
	v.note(drawn...)
	v.crop(part)
	return v.resize(s.width, s.height, filter, s.order)
}

// part draws the part of a width x height image (torchvision's get_params): ten attempts, and then
// the largest centre crop that ratio allows.
func (s randomPart) part(width, height int, d *draws) image.Rectangle {
	area := float64(width * height)
	from, to := math.Log(s.ratio[0]), math.Log(s.ratio[1])
	for range 10 {
		target := area * d.uniform(s.scale[0], s.scale[1])
		ratio := math.Exp(d.uniform(from, to))
		w, h := round(math.Sqrt(target*ratio)), round(math.Sqrt(target/ratio))
		if 0 < w && w <= width && 0 < h && h <= height {
			top := d.below(height - h + 1)
			left := d.below(width - w + 1)
			return image.Rect(left, top, left+w, top+h)
		}
	}
	w, h := width, height
	switch ratio := float64(width) / float64(height); {
	case ratio < s.ratio[0]:
		h = max(round(float64(w)/s.ratio[0]), 1)
	case ratio > s.ratio[1]:
		w = max(round(float64(h)*s.ratio[1]), 1)
	}
	left, top := (width-w)/2, (height-h)/2
	return image.Rect(left, top, left+w, top+h)
}
