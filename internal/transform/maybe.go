package transform

import "github.com/hdmlp/hdmlp/internal/transform/policy"

// The transforms of this file change an image with a probability. torchvision compares what it
// draws with p in float64, but in float32 where a comment says so; a description whose p is a
// float32 makes both equal.

// RandomInvert inverts an image with probability p.
var randomInvert = kind{
	name:   "RandomInvert",
	params: []param{{"p", "0.5"}},
	joint:  ofImages,
	build:  func(a *arguments) step { return a.maybe(policy.Invert, 0) },
}

// RandomAutocontrast stretches the levels of each channel with probability p.
var randomAutocontrast = kind{
	name:   "RandomAutocontrast",
	params: []param{{"p", "0.5"}},
	joint:  ofImages,
	build:  func(a *arguments) step { return a.maybe(policy.AutoContrast, 0) },
}

// RandomEqualize equalizes the histogram of each channel with probability p.
var randomEqualize = kind{
	name:   "RandomEqualize",
	params: []param{{"p", "0.5"}},
	joint:  ofImages,
	build:  func(a *arguments) step { return a.maybe(policy.Equalize, 0) },
}

// RandomPosterize keeps the high bits of each sample with probability p.
//
//	bits  from 1 to 8
var randomPosterize = kind{
	name:   "RandomPosterize",
	params: []param{{"bits", ""}, {"p", "0.5"}},
	joint:  ofImages,
	build: func(a *arguments) step {
		return a.maybe(policy.Posterize, float64(a.Whole("bits", 0, 8)))
	},
}

// RandomSolarize inverts the samples from threshold on with probability p.
//
//	threshold  a level, from 0 to 256
var randomSolarize = kind{
	name:   "RandomSolarize",
	params: []param{{"threshold", ""}, {"p", "0.5"}},
	joint:  ofImages,
	build: func(a *arguments) step {
		return a.maybe(policy.Solarize, a.Number("threshold", -1e6, 1e6))
	},
}

// RandomAdjustSharpness changes the sharpness with probability p.
//
//	sharpness_factor  0: smooth; 1: as it is; 2: twice as sharp
var randomAdjustSharpness = kind{
	name:   "RandomAdjustSharpness",
	params: []param{{"sharpness_factor", ""}, {"p", "0.5"}},
	joint:  ofImages,
	build: func(a *arguments) step {
		return a.maybe(policy.Sharpness, a.Number("sharpness_factor", 0, 1e6))
	},
}

// maybe returns a step that applies an operation with the probability p.
func (a *arguments) maybe(kind policy.Kind, amount float64) step {
	return planned{&policy.Maybe{P: a.Number("p", 0, 1), Kind: kind, Amount: amount}}
}

// RandomGrayscale converts an image to gray with probability p (in float32), in as many channels as
// it has.
var randomGrayscale = kind{
	name:   "RandomGrayscale",
	params: []param{{"p", "0.1"}},
	joint:  ofImages,
	build: func(a *arguments) step {
		return planned{&policy.Maybe{P: float64(a.Chance("p")), Kind: policy.Gray}}
	},
}
