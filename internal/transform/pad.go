package transform

import (
	"errors"
	"fmt"
	"image"

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
	build: func(a *arguments) step { return padded{a.padding("padding"), a.border()} },
}

type padded struct {
	margins margins
	border  border
}

// margins is the width of the border on each side, in pixels.
type margins struct{ left, top, right, bottom int }

// padding returns an argument that specifies margins.
func (a *arguments) padding(name string) margins {
	m := a.Margins(name)
	return margins{m[0], m[1], m[2], m[3]}
}

// outside returns r extended by the margins.
func (m margins) outside(r image.Rectangle) image.Rectangle {
	return image.Rectangle{
		image.Point{r.Min.X - m.left, r.Min.Y - m.top},
		image.Point{r.Max.X + m.right, r.Max.Y + m.bottom},
	}
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
	m := s.margins
	width, height := k.width+m.left+m.right, k.height+m.top+m.bottom
	if width < 1 || height < 1 {
		return fmt.Errorf("nothing is left of %d x %d pixels", k.width, k.height)
	}
	k.fixed(width, height)
	return nil
}

func (s padded) apply(v *view, _ *draws) error {
	width, height := v.size()
	all := s.margins.outside(image.Rect(0, 0, width, height))
	whole, err := s.margins.around(v)
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
func (m margins) around(v *view) (image.Rectangle, error) {
	width, height := v.size()
	left := margins{
		min(m.left, 0), min(m.top, 0), min(m.right, 0),
		min(m.bottom, 0),
	}.outside(image.Rect(0, 0, width, height))
	if left.Dx() < 1 || left.Dy() < 1 {
		return left,
			fmt.Errorf("padding leaves nothing of an image of %d x %d pixels", width, height)
	}
	v.crop(left)
	return margins{
		max(m.left, 0), max(m.top, 0), max(m.right, 0),
		max(m.bottom, 0),
	}.outside(left.Sub(left.Min)), nil
}
