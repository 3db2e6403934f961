package planned

import (
	"github.com/hdmlp/hdmlp/internal/transform/describe"
	"github.com/hdmlp/hdmlp/internal/transform/policy"
)

// The transforms of this file are those of training scripts: PIL's functions, with what Python's
// random module draws.

// PILGaussianBlur blurs an image as PIL's ImageFilter.GaussianBlur, with a random radius.
//
//	radius  [least, most] in pixels
//	p       it is applied if random.random() is at most p; null: always, and p is not drawn
var pilGaussianBlur = Entry{
	Name:    "PILGaussianBlur",
	Help:    "PIL's GaussianBlur of a random radius, of the classes of MoCo and DINO",
	Params:  []describe.Param{{"radius", "[0.1, 2]"}, {"p", "null"}},
	Colours: true,
	Build: func(a *describe.Arguments) policy.Policy {
		p := &policy.Scripts{Kind: policy.Blur, Drawn: true}
		p.From, p.To = a.Pair("radius", 0, 1000)
		p.P, p.Chance = a.Perhaps()
		return p
	},
}

// PILSolarize inverts the samples from a threshold on, as PIL's ImageOps.solarize.
//
//	threshold  a level
//	p          as PILGaussianBlur's
var pilSolarize = Entry{
	Name:    "PILSolarize",
	Help:    "PIL's solarize, of the classes of MoCo v3 and DINO",
	Params:  []describe.Param{{"threshold", "128"}, {"p", "null"}},
	Colours: true,
	Build: func(a *describe.Arguments) policy.Policy {
		p := &policy.Scripts{Kind: policy.Solarize, From: a.Number("threshold", 0, 256)}
		p.P, p.Chance = a.Perhaps()
		return p
	},
}

// PILGrayscale converts an image to gray in as many channels as it has.
//
//	p  as PILGaussianBlur's
var pilGrayscale = Entry{
	Name:    "PILGrayscale",
	Help:    "gray in three channels, of a class of DeiT",
	Params:  []describe.Param{{"p", "null"}},
	Colours: true,
	Build: func(a *describe.Arguments) policy.Policy {
		p := &policy.Scripts{Kind: policy.Gray}
		p.P, p.Chance = a.Perhaps()
		return p
	},
}
