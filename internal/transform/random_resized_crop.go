package transform

import (
	"errors"
	"image"

	"github.com/hdmlp/hdmlp/internal/transform/left"
	"github.com/hdmlp/hdmlp/internal/transform/pixels"
	"github.com/hdmlp/hdmlp/internal/transform/policy"
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
	joint: ofAll,
	build: func(a *arguments) step {
		s := &randomPart{filters: a.Filters("interpolation"), order: a.Order("pillow")}
		a.Antialias("antialias")
		s.height, s.width = a.Size("size")
		s.Part = policy.ReadPart(&a.Arguments)
		return s
	},
}

type randomPart struct {
	policy.Part
	width, height int
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
	part, sure := s.Draw(width, height, d)
	if !sure && v.w.program.known.leaves() {
		return left.ErrRounding
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
	if part.Empty() && v.targets != nil {
		return errors.New("the part of the image is empty, and masks have no pixels for it")
	}
	v.targets.Crop(part)
	if part.Empty() { // PIL resizes it to black
		return v.extend(image.Rect(width, height, width+s.width, height+s.height), border{})
	}
	v.crop(part)
	return v.resize(s.width, s.height, filter, s.order)
}
