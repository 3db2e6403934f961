package transform

import "github.com/hdmlp/hdmlp/internal/transform/policy"

// The transforms of this file are those of training scripts: PIL's functions, with what Python's
// random module draws.

// PILGaussianBlur blurs an image as PIL's ImageFilter.GaussianBlur, with a random radius.
//
//	radius  [least, most] in pixels
//	p       it is applied if random.random() is at most p; null: always, and p is not drawn
var pilGaussianBlur = kind{
	name:   "PILGaussianBlur",
	help:   "PIL's GaussianBlur of a random radius, of the classes of MoCo and DINO",
	params: []param{{"radius", "[0.1, 2]"}, {"p", "null"}},
	joint:  ofImages,
	build: func(a *arguments) step {
		p := &policy.Scripts{Kind: policy.Blur, Drawn: true}
		p.From, p.To = a.Pair("radius", 0, 1000)
		p.P, p.Chance = a.Perhaps()
		return planned{p}
	},
}

// PILSolarize inverts the samples from a threshold on, as PIL's ImageOps.solarize.
//
//	threshold  a level
//	p          as PILGaussianBlur's
var pilSolarize = kind{
	name:   "PILSolarize",
	help:   "PIL's solarize, of the classes of MoCo v3 and DINO",
	params: []param{{"threshold", "128"}, {"p", "null"}},
	joint:  ofImages,
	build: func(a *arguments) step {
		p := &policy.Scripts{Kind: policy.Solarize, From: a.Number("threshold", 0, 256)}
		p.P, p.Chance = a.Perhaps()
		return planned{p}
	},
}

// PILGrayscale converts an image to gray in as many channels as it has.
//
//	p  as PILGaussianBlur's
var pilGrayscale = kind{
	name:   "PILGrayscale",
	help:   "gray in three channels, of a class of DeiT",
	params: []param{{"p", "null"}},
	joint:  ofImages,
	build: func(a *arguments) step {
		p := &policy.Scripts{Kind: policy.Gray}
		p.P, p.Chance = a.Perhaps()
		return planned{p}
	},
}
