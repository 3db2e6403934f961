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
		switch size := a.Wholes("size", 1, describe.MaxEdge, "a whole number or [height, width]", 1,
			2); len(size) {
		case 1:
			s.shorter = size[0]
		case 2:
			s.height, s.width = size[0], size[1]
		}
		if !a.None("max_size") {
			s.longest = a.Whole("max_size", 1, describe.MaxEdge)
			if s.shorter == 0 {
				a.Fault("max_size", "it needs a size that is one number")
			} else if s.longest <= s.shorter {
				a.Fault("max_size", "it must be more than size, %d", s.shorter)
			}
		}
		return s
	},
}

type resized struct {
	height, width    int // 0: shorter applies
	shorter, longest int
	filter           pixels.Filter
	order            pixels.Order
}

// size returns the size that an image of this size is resized to (torchvision's
// _compute_resized_output_size).
func (s resized) size(width, height int) (int, int) {
	if s.shorter == 0 {
		return s.width, s.height
	}
	short, long := min(width, height), max(width, height)
	newShort, newLong := s.shorter, int(float64(s.shorter*long)/float64(short))
	if s.longest > 0 && newLong > s.longest {
		newShort, newLong = int(float64(s.longest*newShort)/float64(newLong)), s.longest
	}
	if width <= height {
		return newShort, newLong
	}
	return newLong, newShort
}

func (s resized) follow(k *known) error {
	if err := k.image(); err != nil {
		return err
	}
	switch {
	case s.shorter == 0:
		k.fixed(s.width, s.height)
	case k.width > 0:
		width, height := s.size(k.width, k.height)
		if width < 1 || height < 1 {
			return errors.New("nothing would be left of the shorter edge")
		}
		k.fixed(width, height)
	default:
		k.shorter = s.shorter
		if s.longest > 0 {
			k.shorter = 0
		}
		k.varies = fmt.Sprintf("Resize(%d) leaves the longer edge in proportion; add "+
			"CenterCrop(%d) or RandomCrop(%d) after it, or give Resize a height and a width",
			s.shorter, s.shorter, s.shorter)
	}
	return nil
}

func (s resized) apply(v *view, _ *draws) error {
	width, height := s.size(v.size())
	if width < 1 || height < 1 {
		w, h := v.size()
		return fmt.Errorf("an image of %d x %d pixels has nothing left of its shorter edge", w, h)
	}
	v.note(Param{"height", float64(height)}, Param{"width", float64(width)})
	return v.resize(width, height, s.filter, s.order)
}
