package transform

import (
	"errors"
	"fmt"

	"github.com/hdmlp/hdmlp/internal/transform/describe"
	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// Resize resizes an image with PIL's antialiasing.
//
//	size           [height, width]; or a whole number: what the shorter edge becomes, the
//	               other one in proportion
//	interpolation  nearest, box, bilinear, hamming, bicubic or lanczos
//	max_size       limit on the longer edge, or null; the shorter one shrinks in proportion
//	antialias      has no effect: PIL always antialiases, except with nearest
//	pillow         release of Pillow whose pixels to reproduce, 12 or 13: release 13 resizes along
//	               columns first if the height shrinks by more than twice as many pixels as the
//	               width
var resize = kind{
	name: "Resize",
	params: []param{
		{"size", ""},
		{"interpolation", `"bilinear"`},
		{"max_size", "null"},
		{"antialias", "true"},
		{"pillow", "12"},
	},
	joint: ofAll,
	build: func(a *arguments) step {
		s := resized{filter: a.Filter("interpolation"), order: a.Order("pillow")}
		a.Antialias("antialias")
		s.Sizing = a.Sizing()
		return s
	},
}

type resized struct {
	describe.Sizing
	filter pixels.Filter
	order  pixels.Order
}

func (s resized) follow(k *known) error {
	if err := k.image(); err != nil {
		return err
	}
	switch {
	case s.Shorter == 0:
		k.fixed(s.Width, s.Height)
	case k.width > 0:
		width, height := s.Of(k.width, k.height)
		if width < 1 || height < 1 {
			return errors.New("nothing would be left of the shorter edge")
		}
		k.fixed(width, height)
	default:
		k.shorter = s.Shorter
		if s.Longest > 0 {
			k.shorter = 0
		}
		k.varies = fmt.Sprintf("Resize(%d) leaves the longer edge in proportion; add "+
			"CenterCrop(%d) or RandomCrop(%d) after it, or give Resize a height and a width",
			s.Shorter, s.Shorter, s.Shorter)
	}
	return nil
}

func (s resized) apply(v *view, _ *draws) error {
	width, height := s.Of(v.size())
	if width < 1 || height < 1 {
		w, h := v.size()
		return fmt.Errorf("an image of %d x %d pixels has nothing left of its shorter edge", w, h)
	}
	v.note(Param{"height", float64(height)}, Param{"width", float64(width)})
	return v.resize(width, height, s.filter, s.order)
}
