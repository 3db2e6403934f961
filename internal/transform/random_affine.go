package transform

import "github.com/hdmlp/hdmlp/internal/transform/policy"

// RandomAffine rotates, moves, scales and shears an image, all at random.
//
//	degrees              as RandomRotation's
//	translate            [x, y], the largest moves as shares of the edges, from 0 to 1; or null
//	scale                [least, most] of a factor; or null
//	shear                degrees: the most along x in either direction, [least, most] along x, or
//	                     those and [least, most] along y in one list; or null
//	interpolation, fill  as RandAugment's
//	center               as RandomRotation's
var randomAffine = kind{
	name: "RandomAffine",
	params: []param{
		{"degrees", ""},
		{"translate", "null"},
		{"scale", "null"},
		{"shear", "null"},
		{"interpolation", `"nearest"`},
		{"fill", "0"},
		{"center", "null"},
	},
	build: func(a *arguments) step {
		s := &randomAffined{motion: a.motion(), center: a.center()}
		s.from, s.to = a.around("degrees", 1e6)
		if !a.None("translate") {
			s.move = a.Numbers("translate", 0, 1, "[x, y]", 2)
		}
		if !a.None("scale") {
			from, to := a.Pair("scale", 1e-6, 1e6)
			s.scale = []float64{from, to}
		}
		if !a.None("shear") {
			s.shear = a.Numbers("shear", -1e6, 1e6, "1, 2 or 4 numbers", 1, 2, 4)
			if len(s.shear) == 1 {
				s.shear = []float64{-s.shear[0], s.shear[0]}
			}
		}
		return s
	},
}

type randomAffined struct {
	from, to           float64 // degrees
	move, scale, shear []float64
	center             *[2]float64
	motion             policy.Motion
}

func (s *randomAffined) follow(k *known) error { return followMotion(k, s.motion) }

func (s *randomAffined) apply(v *view, d *draws) error {
	width, height := v.size()
	draw := func(from, to float64) float64 {
		return float64(d.Torch.Uniform(float32(from), float32(to)))
	}
	drawn := policy.Affine{Angle: draw(s.from, s.to), Center: s.center}
	if s.move != nil {
		for i, edge := range [2]int{width, height} {
			most := s.move[i] * float64(edge)
			drawn.Shift[i] = float64(round(draw(-most, most)))
		}
	}
	if s.scale != nil {
		drawn.Scale = draw(s.scale[0], s.scale[1])
	}
	for i := 0; i < len(s.shear); i += 2 {
		drawn.Shear[i/2] = draw(s.shear[i], s.shear[i+1])
	}
	v.note(
		Param{"degrees", drawn.Angle},
		Param{"x", drawn.Shift[0]},
		Param{"y", drawn.Shift[1]},
		Param{"scale", drawn.Scale},
		Param{"shear_x", drawn.Shear[0]},
		Param{"shear_y", drawn.Shear[1]},
	)
	return v.move(drawn.Matrix(width, height), s.motion)
}
