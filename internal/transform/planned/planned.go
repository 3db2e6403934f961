// Package planned lists the transforms that apply what a policy draws: their parameters, and the
// policy that arguments describe. Package policy draws, and package transform applies.
package planned

import (
	"github.com/hdmlp/hdmlp/internal/transform/describe"
	"github.com/hdmlp/hdmlp/internal/transform/pixels"
	"github.com/hdmlp/hdmlp/internal/transform/policy"
)

// An Entry is a transform that applies what a policy draws: its name, its parameters, and the
// policy that its arguments describe.
type Entry struct {
	Name    string
	Help    string // what it does, in a line; "" if torchvision has it
	Params  []describe.Param
	Colours bool // it moves no pixels
	Build   func(a *describe.Arguments) policy.Policy
}

// Entries lists the transforms of policies.
var Entries = []Entry{
	randAugment,
	trivialAugmentWide,
	autoAugment,
	timmRandAugment,
	timmAutoAugment,
	randomInvert,
	randomAutocontrast,
	randomEqualize,
	randomPosterize,
	randomSolarize,
	randomAdjustSharpness,
	randomGrayscale,
	pilGaussianBlur,
	pilSolarize,
	pilGrayscale,
	randomAffine,
}

// ReadMotion returns the arguments interpolation and fill of a step that moves pixels.
func ReadMotion(a *describe.Arguments) policy.Motion {
	var m policy.Motion
	switch a.Choice("interpolation", "nearest", "bilinear", "bicubic") {
	case "bilinear":
		m.Filter = pixels.Bilinear
	case "bicubic":
		m.Filter = pixels.Bicubic
	default:
		m.Filter = pixels.Nearest
	}
	m.Fill.Levels, m.Fill.One = a.Fill()
	return m
}

// The transforms of this file apply what a policy draws.

// RandAugment applies num_ops random operations, all of the same magnitude.
//
//	num_ops             the number of operations
//	magnitude           the index of all magnitudes, below num_magnitude_bins
//	num_magnitude_bins  the number of magnitudes of each operation
//	interpolation       nearest, bilinear or bicubic, where pixels move
//	fill                the level outside the image, or one for each channel
//	draws               as torchvision's "v1" or "v2"
//	operations          in the place of torchvision's with their magnitudes: a list of Offer
var randAugment = Entry{
	Name: "RandAugment",
	Params: []describe.Param{
		{"num_ops", "2"},
		{"magnitude", "9"},
		{"num_magnitude_bins", "31"},
		{"interpolation", `"nearest"`},
		{"fill", "null"},
		{"draws", `"v1"`},
		{"operations", "null"},
	},
	Build: func(a *describe.Arguments) policy.Policy {
		bins := a.Whole("num_magnitude_bins", 2, mostBins)
		magnitude := a.Whole("magnitude", 0, bins-1)
		p := &policy.Several{Motion: ReadMotion(a), V2: a.Apart()}
		p.Count = a.Whole("num_ops", 0, 100)
		p.Offers = offers(a, func() []policy.Offer {
			return policy.RandAugmentOffers(bins, magnitude)
		})
		return p
	},
}

// mostBins is how many magnitudes an operation may have.
const mostBins = 1 << 12

// TrivialAugmentWide applies one random operation of a random magnitude.
//
//	num_magnitude_bins, interpolation, fill, draws  as RandAugment's
//	operations  as RandAugment's, with all magnitudes of which one is drawn
var trivialAugmentWide = Entry{
	Name: "TrivialAugmentWide",
	Params: []describe.Param{
		{"num_magnitude_bins", "31"},
		{"interpolation", `"nearest"`},
		{"fill", "null"},
		{"draws", `"v1"`},
		{"operations", "null"},
	},
	Build: func(a *describe.Arguments) policy.Policy {
		bins := a.Whole("num_magnitude_bins", 2, mostBins)
		p := &policy.Several{Count: 1, Motion: ReadMotion(a), V2: a.Apart()}
		p.Offers = offers(a, func() []policy.Offer { return policy.TrivialAugmentOffers(bins) })
		return p
	},
}

// AutoAugment applies the operations of a random sub-policy, each with its probability.
//
//	policy               "imagenet", "cifar10" or "svhn"
//	interpolation, fill  as RandAugment's
//	draws                "v1": all probabilities and signs first, as torchvision's v1; "v2": each
//	                     when it is needed, as its v2
//	policies             in the place of policy: lists of Offer
var autoAugment = Entry{
	Name: "AutoAugment",
	Params: []describe.Param{
		{"policy", `"imagenet"`},
		{"interpolation", `"nearest"`},
		{"fill", "null"},
		{"draws", `"v1"`},
		{"policies", "null"},
	},
	Build: func(a *describe.Arguments) policy.Policy {
		name := a.Choice("policy", "imagenet", "cifar10", "svhn")
		p := &policy.SubPolicies{Motion: ReadMotion(a), V2: a.Apart()}
		if a.None("policies") {
			p.Policies = policy.Published(name)
			return p
		}
		a.List("policies", &p.Policies)
		for _, list := range p.Policies {
			if !p.V2 && len(list) > policy.MostOperations {
				a.Fault("policies", "a sub-policy has at most %d operations",
					policy.MostOperations)
				break
			}
		}
		if len(p.Policies) == 0 {
			a.Fault("policies", "it must not be empty")
		}
		return p
	},
}

// TimmRandAugment applies layers operations, each drawn of a list, as timm's RandAugment.
//
//	operations  a list of Level
//	layers      the number of operations
//	pillow      the installed release of Pillow, from 13 on of which posterizing to 0 bits is an
//	            error
var timmRandAugment = Entry{
	Name:   "TimmRandAugment",
	Help:   "timm's RandAugment, of rand_augment_transform",
	Params: []describe.Param{{"operations", ""}, {"layers", "2"}, {"pillow", "12"}},
	Build: func(a *describe.Arguments) policy.Policy {
		p := &policy.Layers{Count: a.Whole("layers", 0, 100), Strict: a.Strict()}
		if a.List("operations", &p.Levels); len(p.Levels) == 0 {
			a.Fault("operations", "it must not be empty")
		}
		return p
	},
}

// TimmAutoAugment applies the operations of a random sub-policy, as timm's AutoAugment.
//
//	policies  lists of Level
//	pillow    as TimmRandAugment's
var timmAutoAugment = Entry{
	Name:   "TimmAutoAugment",
	Help:   "timm's AutoAugment, of auto_augment_transform",
	Params: []describe.Param{{"policies", ""}, {"pillow", "12"}},
	Build: func(a *describe.Arguments) policy.Policy {
		p := &policy.TimmPolicies{Strict: a.Strict()}
		if a.List("policies", &p.Policies); len(p.Policies) == 0 {
			a.Fault("policies", "it must not be empty")
		}
		return p
	},
}

// offers returns the argument operations of torchvision's policies; if it is not given, otherwise.
func offers(a *describe.Arguments, otherwise func() []policy.Offer) (list []policy.Offer) {
	if a.None("operations") {
		return otherwise()
	}
	if a.List("operations", &list); len(list) == 0 {
		a.Fault("operations", "it must not be empty")
	}
	return list
}
