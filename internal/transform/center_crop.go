package transform

import "image"

// CenterCrop crops the centre. A smaller image is first padded with black.
//
//	size  [height, width], or a whole number for both
var centerCrop = kind{
	name:   "CenterCrop",
	params: []param{{"size", ""}},
	joint:  ofAll,
	build: func(a *arguments) step {
		height, width := a.Size("size")
		return centered{width, height}
	},
}

type centered struct{ width, height int }

func (s centered) follow(k *known) error {
	if err := k.image(); err != nil {
		return err
	}
	k.fixed(s.width, s.height)
	return nil
}

func (s centered) apply(v *view, _ *draws) error {
	width, height := v.size()
	left, top := middle(width, s.width), middle(height, s.height)
	v.targets.CropApart(image.Rect(left, top, left+s.width, top+s.height),
		image.Rectangle{Min: image.Pt(half(width-s.width), half(height-s.height))})
	return v.extend(image.Rect(left, top, left+s.width, top+s.height), border{})
}

// middle returns where a centred crop begins: torchvision rounds halves to even when cropping, and
// down when padding.
func middle(have, want int) int {
	if want > have {
		return -((want - have) / 2)
	}
	return half(have - want)
}

// half rounds halves to even.
func half(n int) int { return round(float64(n) / 2) }
