package transform

import (
	"errors"
	"fmt"
	"image"

	"github.com/hdmlp/hdmlp/internal/transform/describe"
)

// trimBorder describes TrimBorder, which cuts border_size pixels off each side, as timm's.
var trimBorder = kind{
	name:   "TrimBorder",
	params: []param{{"border_size", ""}},
	build: func(a *arguments) step {
		return trimmed{border: a.Whole("border_size", 0, describe.MaxEdge)}
	},
}

type trimmed struct{ border int }

func (s trimmed) follow(k *known) error {
	k.shorter = 0
	if k.width > 0 {
		k.fixed(k.width-2*s.border, k.height-2*s.border)
		if min(k.width, k.height) < 1 {
			return errors.New("nothing would be left of the image")
		}
	}
	return k.image()
}

func (s trimmed) apply(v *view, _ *draws) error {
	width, height := v.size()
	if min(width, height) <= 2*s.border {
		return fmt.Errorf("a border of %d pixels leaves nothing of an image of %d x %d pixels",
			s.border, width, height)
	}
	v.crop(image.Rect(s.border, s.border, width-s.border, height-s.border))
	return nil
}
