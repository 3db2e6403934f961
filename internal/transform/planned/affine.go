package planned

import (
	"github.com/hdmlp/hdmlp/internal/transform/describe"
	"github.com/hdmlp/hdmlp/internal/transform/policy"
)

// RandomAffine rotates, moves, scales and shears an image, all at random.
//
//	degrees              as RandomRotation's
//	translate            [x, y], the largest moves as shares of the edges, from 0 to 1; or null
//	scale                [least, most] of a factor; or null
//	shear                degrees: the most along x in either direction, [least, most] along x, or
//	                     those and [least, most] along y in one list; or null
//	interpolation, fill  as RandAugment's
//	center               as RandomRotation's
var randomAffine = Entry{
	Name: "RandomAffine",
	Params: []describe.Param{
		{"degrees", ""},
		{"translate", "null"},
		{"scale", "null"},
		{"shear", "null"},
		{"interpolation", `"nearest"`},
		{"fill", "0"},
		{"center", "null"},
	},
	Build: func(a *describe.Arguments) policy.Policy {
		p := &policy.RandomAffine{Motion: ReadMotion(a), Center: a.Center()}
		p.From, p.To = a.Around("degrees", 1e6)
		if !a.None("translate") {
			p.Move = a.Numbers("translate", 0, 1, "[x, y]", 2)
		}
		if !a.None("scale") {
			from, to := a.Pair("scale", 1e-6, 1e6)
			p.Scale = []float64{from, to}
		}
		if !a.None("shear") {
			p.Shear = a.Numbers("shear", -1e6, 1e6, "1, 2 or 4 numbers", 1, 2, 4)
			if len(p.Shear) == 1 {
				p.Shear = []float64{-p.Shear[0], p.Shear[0]}
			}
		}
		return p
	},
}
