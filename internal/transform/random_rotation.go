package transform

import (
	"github.com/hdmlp/hdmlp/internal/transform/planned"
	"github.com/hdmlp/hdmlp/internal/transform/policy"
)

// RandomRotation rotates an image by a random angle.
//
//	degrees              [least, most], or the most in either direction
//	interpolation, fill  as RandAugment's
//	expand               make the image as large as the rotated one
//	center               [x, y] of the point to rotate around; null: the middle
var randomRotation = kind{
	name: "RandomRotation",
	params: []param{
		{"degrees", ""},
		{"interpolation", `"nearest"`},
		{"expand", "false"},
		{"center", "null"},
		{"fill", "0"},
	},
	build: func(a *arguments) step {
		s := &randomRotated{expand: a.Flag("expand"), center: a.Center()}
		s.motion = planned.ReadMotion(&a.Arguments)
		s.from, s.to = a.Around("degrees", 1e6)
		return s
	},
}

type randomRotated struct {
	from, to float64 // degrees
	expand   bool
	center   *[2]float64
	motion   policy.Motion
}

func (s *randomRotated) follow(k *known) error {
	if s.expand {
		k.fixed(0, 0)
		k.varies = "RandomRotation(expand=True) gives images different sizes; add Resize((224, " +
			"224)) or CenterCrop(224) after it"
	}
	return followMotion(k, s.motion)
}

func (s *randomRotated) apply(v *view, d *draws) error {
	angle := float64(d.Torch.Uniform(float32(s.from), float32(s.to)))
	v.note(Param{"degrees", angle})
	return v.rotate(angle, s.expand, s.center, s.motion)
}
