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
//	draws          "torchvision": from torch's generator; "timm": from Python's, as timm does
//	log_ratio      the logarithms of ratio that torch computed for "torchvision"; by default those
//	               of the float32 closest to it, rounded to float32
var randomResizedCrop = kind{
	name: "RandomResizedCrop",
	params: []param{
		{"size", ""},
		{"scale", "[0.08, 1]"},
		{"ratio", "[0.75, 1.3333333333333333]"},
		{"interpolation", `"bilinear"`},
		{"antialias", "true"},
		{"pillow", "12"},
		{"draws", `"torchvision"`},
		{"log_ratio", "null"},
	},
	build: func(a *arguments) step {
		s := &randomPart{filters: a.filters("interpolation"), order: a.order("pillow")}
		a.antialias("antialias")
		s.height, s.width = a.Size("size")
		s.scale[0], s.scale[1] = a.Pair("scale", 0, 1e6)
		s.ratio[0], s.ratio[1] = a.Pair("ratio", 1e-6, 1e6)
		s.timm = a.Choice("draws", "torchvision", "timm") == "timm"
		s.logs = a.logs("log_ratio", s.ratio)
		return s
	},
}

// logs returns an argument that has the logarithms of two numbers as torch computes them, or
// computes them.
func (a *arguments) logs(name string, numbers [2]float64) (logs [2]float32) {
	if !a.None(name) {
		from, to := a.Pair(name, -20, 20)
		return [2]float32{float32(from), float32(to)}
	}
	for i, n := range numbers {
		logs[i] = float32(math.Log(float64(float32(n))))
	}
	return logs
}

type randomPart struct {
	width, height int
	scale, ratio  [2]float64
	logs          [2]float32      // of ratio
	timm          bool            // numbers are drawn as timm does
	filters       []pixels.Filter // one is drawn per sample if there are several
	order         pixels.Order
}

func (s *randomPart) follow(k *known) error {
	if err := k.image(); err != nil {
		return err
	}
	k.fixed(s.width, s.height)
	return nil
}

func (s *randomPart) apply(v *view, d *draws) error {
	width, height := v.size()
	part, sure := s.part(width, height, d)
	if !sure && v.w.program.known.leaves() {
		return errRounding
	}
	drawn := []Param{
		{"top", float64(part.Min.Y)},
		{"left", float64(part.Min.X)},
		{"height", float64(part.Dy())},
		{"width", float64(part.Dx())},
	}
	filter := s.filters[0]
	if n := len(s.filters); n > 1 {
		i := d.Python.Below(n) // random.choice
		filter, drawn = s.filters[i], append(drawn, Param{"interpolation", float64(i)})
	}
	v.note(drawn...)
	if part.Empty() { // PIL resizes it to black
		return v.extend(image.Rect(width, height, width+s.width, height+s.height), border{})
	}
	v.crop(part)
	return v.resize(s.width, s.height, filter, s.order)
}

// attempt is an area and an aspect ratio that were drawn for a part. torch's exponential gives the
// ratio or one of the two float32 beside it: which differs between releases, processors and
// libraries.
type attempt struct {
	area, ratio   float64
	before, after float64
}

// attempt draws as torchvision does, in float32 and then in float64; or as timm, in float64.
func (s *randomPart) attempt(area float64, d *draws) (a attempt) {
	if s.timm {
		a.area = d.Python.Uniform(s.scale[0], s.scale[1]) * area
		a.ratio = math.Exp(d.Python.Uniform(math.Log(s.ratio[0]), math.Log(s.ratio[1])))
		a.before, a.after = a.ratio, a.ratio
		return a
	}
	a.area = area * float64(d.Torch.Uniform(float32(s.scale[0]), float32(s.scale[1])))
	ratio := float32(math.Exp(float64(d.Torch.Uniform(s.logs[0], s.logs[1]))))
	a.ratio = float64(ratio)
	a.before = float64(math.Nextafter32(ratio, 0))
	a.after = float64(math.Nextafter32(ratio, math.MaxFloat32))
	return a
}

// sides returns the width and height of a part with the area and this ratio.
func (a *attempt) sides(ratio float64) image.Point {
	return image.Pt(round(math.Sqrt(a.area*ratio)), round(math.Sqrt(a.area/ratio)))
}

// place draws where a part lies that is smaller by these numbers of pixels.
func (s *randomPart) place(across, down int, d *draws) (at image.Point) {
	if s.timm {
		at.Y = d.Python.Below(down + 1)
		at.X = d.Python.Below(across + 1)
		return at
	}
	at.Y = d.Torch.Below(down + 1)
	at.X = d.Torch.Below(across + 1)
	return at
}

// part draws the part of a width x height image (get_params of torchvision and timm): ten attempts,
// and then the largest centre crop that ratio allows, which may be empty; with timm, whose attempts
// may have sides of 0 pixels, the others as well. sure is false if a side depends on how torch rounds
// an exponential.
func (s *randomPart) part(width, height int, d *draws) (part image.Rectangle, sure bool) {
	sure = true
	least := 1
	if s.timm {
		least = 0
	}
	for range 10 {
		a := s.attempt(float64(width*height), d)
		sides := a.sides(a.ratio)
		sure = sure && a.sides(a.before) == sides && a.sides(a.after) == sides
		if least <= sides.X && sides.X <= width && least <= sides.Y && sides.Y <= height {
			at := s.place(width-sides.X, height-sides.Y, d)
			return image.Rectangle{Min: at, Max: at.Add(sides)}, sure
		}
	}
	w, h := width, height
	switch ratio := float64(width) / float64(height); {
	case ratio < s.ratio[0]:
		h = round(float64(w) / s.ratio[0])
	case ratio > s.ratio[1]:
		w = round(float64(h) * s.ratio[1])
	}
	left, top := (width-w)/2, (height-h)/2
	return image.Rect(left, top, left+w, top+h), sure
}
