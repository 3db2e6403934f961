package planned

import (
	"github.com/hdmlp/hdmlp/internal/transform/describe"
	"github.com/hdmlp/hdmlp/internal/transform/policy"
)

// The transforms of this file change an image with a probability. torchvision compares what it
// draws with p in float64, but in float32 where a comment says so; a description whose p is a
// float32 makes both equal.

// RandomInvert inverts an image with probability p.
var randomInvert = Entry{
	Name:    "RandomInvert",
	Params:  []describe.Param{{"p", "0.5"}},
	Colours: true,
	Build:   func(a *describe.Arguments) policy.Policy { return maybe(a, policy.Invert, 0) },
}

// RandomAutocontrast stretches the levels of each channel with probability p.
var randomAutocontrast = Entry{
	Name:    "RandomAutocontrast",
	Params:  []describe.Param{{"p", "0.5"}},
	Colours: true,
	Build:   func(a *describe.Arguments) policy.Policy { return maybe(a, policy.AutoContrast, 0) },
}

// RandomEqualize equalizes the histogram of each channel with probability p.
var randomEqualize = Entry{
	Name:    "RandomEqualize",
	Params:  []describe.Param{{"p", "0.5"}},
	Colours: true,
	Build:   func(a *describe.Arguments) policy.Policy { return maybe(a, policy.Equalize, 0) },
}

// RandomPosterize keeps the high bits of each sample with probability p.
//
//	bits  from 1 to 8
var randomPosterize = Entry{
	Name:    "RandomPosterize",
	Params:  []describe.Param{{"bits", ""}, {"p", "0.5"}},
	Colours: true,
	Build: func(a *describe.Arguments) policy.Policy {
		return maybe(a, policy.Posterize, float64(a.Whole("bits", 0, 8)))
	},
}

// RandomSolarize inverts the samples from threshold on with probability p.
//
//	threshold  a level, from 0 to 256
var randomSolarize = Entry{
	Name:    "RandomSolarize",
	Params:  []describe.Param{{"threshold", ""}, {"p", "0.5"}},
	Colours: true,
	Build: func(a *describe.Arguments) policy.Policy {
		return maybe(a, policy.Solarize, a.Number("threshold", -1e6, 1e6))
	},
}

// RandomAdjustSharpness changes the sharpness with probability p.
//
//	sharpness_factor  0: smooth; 1: as it is; 2: twice as sharp
var randomAdjustSharpness = Entry{
	Name:    "RandomAdjustSharpness",
	Params:  []describe.Param{{"sharpness_factor", ""}, {"p", "0.5"}},
	Colours: true,
	Build: func(a *describe.Arguments) policy.Policy {
		return maybe(a, policy.Sharpness, a.Number("sharpness_factor", 0, 1e6))
	},
}

// maybe returns a step that applies an operation with the probability p.
func maybe(a *describe.Arguments, kind policy.Kind, amount float64) policy.Policy {
	return &policy.Maybe{P: a.Number("p", 0, 1), Kind: kind, Amount: amount}
}

// RandomGrayscale converts an image to gray with probability p (in float32), in as many channels as
// it has.
var randomGrayscale = Entry{
	Name:    "RandomGrayscale",
	Params:  []describe.Param{{"p", "0.1"}},
	Colours: true,
	Build: func(a *describe.Arguments) policy.Policy {
		return &policy.Maybe{P: float64(a.Chance("p")), Kind: policy.Gray}
	},
}
