package transform

import "image"

// CenterCrop cuts out the middle. Where the image is smaller, black is put around it first.
//
//	size  [height, width], or a whole number for both
var centerCrop = kind{
	name:   "CenterCrop",
	params: []param{{"size", ""}},
	build: func(a *arguments) step {
		height, width := a.size("size")
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
	return v.extend(image.Rect(left, top, left+s.width, top+s.height), border{})
}

// middle is where a crop begins: torchvision rounds a half to even where it
// crops, and down where it pads.
func middle(have, want int) int {
	if want > have {
		return -((want - have) / 2)
	}
	return round(float64(have-want) / 2)
}
