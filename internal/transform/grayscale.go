package transform

import (
	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// Grayscale converts an image to gray, as PIL's convert("L").
//
//	num_output_channels  1, or 3 that are equal
var grayscale = kind{
	name:   "Grayscale",
	params: []param{{"num_output_channels", "1"}},
	joint:  ofImages,
	build: func(a *arguments) step {
		s := gray{channels: a.Whole("num_output_channels", 1, 3)}
		if s.channels == 2 {
			a.Fault("num_output_channels", "it must be 1 or 3")
		}
		return s
	},
}

type gray struct{ channels int }

func (s gray) follow(k *known) error {
	k.channels = s.channels
	return k.image()
}

func (s gray) apply(v *view, _ *draws) error {
	src, err := v.pixels()
	if err != nil || src.Channels == 1 && s.channels == 1 {
		return err
	}
	v.bare, v.grayed = v.bare || s.channels == 3, true
	if err := v.w.spare(1-v.buffer, src.Width, src.Height, s.channels); err != nil {
		return err
	}
	pixels.Gray(v.spare(), src, s.channels)
	v.become()
	return nil
}
