package transform

import (
	"errors"
	"fmt"
	"image"

	"github.com/hdmlp/hdmlp/internal/transform/describe"
	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// Pad adds a border to an image.
//
//	padding       [left, top, right, bottom], [left and right, top and bottom], or a whole number
//	              for all; negative numbers crop
//	fill          the border's level, 0 to 255: a number, or one per channel
//	padding_mode  constant: fill; edge: the outermost pixels; reflect: the image mirrored at its
//	              outermost pixels; symmetric: mirrored at its edges, repeating these pixels
//	mask_fill     the number that masks have there; null: fill
var pad = kind{
	name: "Pad",
	params: []param{
		{"padding", ""}, {"fill", "0"}, {"padding_mode", `"constant"`}, {"mask_fill", "null"},
	},
	joint: ofAll,
	build: func(a *arguments) step { return padded{a.Margins("padding"), a.border()} },
}

type padded struct {
	margins describe.Margins
	border  border
}

// border is the contents of a border: the arguments fill and padding_mode.
type border struct {
	pixels.Border
	one  bool // fill is the same for all channels
	mask int  // the fill of masks; -1: it has none
}

func (a *arguments) border() border {
	var b border
	b.Mode = a.Choice("padding_mode", "constant", "edge", "reflect", "symmetric")
	b.Fill, b.one = a.Fill()
	b.mask = int(b.Fill[0])
	if !a.None("mask_fill") {
		b.mask = a.Whole("mask_fill", 0, 1<<16-1)
	} else if !b.one {
		b.mask = -1
	}
	return b
}

func (b border) follow(k *known) error {
	if !b.one && k.channels == 1 {
		return errors.New("fill has three numbers, and images have one channel")
	}
	if k.joint == nil {
		return nil
	}
	for _, input := range k.joint.List {
		if input.IsMask() && (b.mask < 0 || b.mask > 255 && input.Type.Size() == 1) {
			return errors.New("fill is no number of masks: give mask_fill, or of torchvision's a dict, " +
				"as {tv_tensors.Mask: 255, \"others\": 0}")
		}
	}
	return nil
}

func (s padded) follow(k *known) error {
	if err := k.image(); err != nil {
		return err
	}
	if err := s.border.follow(k); err != nil {
		return err
	}
	if k.width == 0 {
		k.shorter = 0
		return nil
	}
	width, height := s.margins.Size(k.width, k.height)
	if width < 1 || height < 1 {
		return fmt.Errorf("nothing is left of %d x %d pixels", k.width, k.height)
	}
	k.fixed(width, height)
	return nil
}

func (s padded) apply(v *view, _ *draws) error {
	width, height := v.size()
	all := s.margins.Around(image.Rect(0, 0, width, height))
	whole, err := v.around(s.margins)
	if err != nil {
		return err
	}
	v.bare = true
	if err := v.targets.Pad(all, s.border.Mode, s.border.mask); err != nil {
		return err
	}
	return v.extend(whole, s.border)
}

// around returns the image's rectangle extended by the margins. It first crops what negative
// margins cut off, so that a border does not show it.
func (v *view) around(m describe.Margins) (image.Rectangle, error) {
	width, height := v.size()
	left := m.Cropping().Around(image.Rect(0, 0, width, height))
	if left.Dx() < 1 || left.Dy() < 1 {
		return left,
			fmt.Errorf("padding leaves nothing of an image of %d x %d pixels", width, height)
	}
	v.crop(left)
	return m.Adding().Around(left.Sub(left.Min)), nil
}
