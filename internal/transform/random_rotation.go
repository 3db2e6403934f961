package transform

import "github.com/hdmlp/hdmlp/internal/transform/policy"

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
		s := &randomRotated{motion: a.motion(), expand: a.Flag("expand"), center: a.center()}
		s.from, s.to = a.around("degrees", 1e6)
		return s
	},
}

// around returns an argument that is [least, most], or the most in either direction.
func (a *arguments) around(name string, limit float64) (from, to float64) {
	list := a.Numbers(name, -limit, limit, "a number or [least, most]", 1, 2)
	switch {
	case len(list) == 2:
		return list[0], list[1]
	case len(list) == 1 && list[0] < 0:
		a.Fault(name, "a single number must not be negative")
	case len(list) == 1:
		return -list[0], list[0]
	}
	return 0, 0
}

// center returns the argument center.
func (a *arguments) center() *[2]float64 {
	if a.None("center") {
		return nil
	}
	list := a.Numbers("center", -1e6, 1e6, "[x, y]", 2)
	if len(list) < 2 {
		return nil
	}
	return &[2]float64{list[0], list[1]}
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
