package transform

import (
	"errors"

	"github.com/hdmlp/hdmlp/internal/transform/policy"
)

// The transforms of this file apply what a policy draws.

// RandAugment applies num_ops random operations, all of the same magnitude.
//
//	num_ops             the number of operations
//	magnitude           the index of all magnitudes, below num_magnitude_bins
//	num_magnitude_bins  the number of magnitudes of each operation
//	interpolation       nearest, bilinear or bicubic, where pixels move
//	fill                the level outside the image, or one for each channel
//	draws               as torchvision's "v1" or "v2"
//	operations          in the place of torchvision's with their magnitudes: a list of policy.Offer
var randAugment = kind{
	name: "RandAugment",
	params: []param{
		{"num_ops", "2"},
		{"magnitude", "9"},
		{"num_magnitude_bins", "31"},
		{"interpolation", `"nearest"`},
		{"fill", "null"},
		{"draws", `"v1"`},
		{"operations", "null"},
	},
	build: func(a *arguments) step {
		bins := a.Whole("num_magnitude_bins", 2, mostBins)
		magnitude := a.Whole("magnitude", 0, bins-1)
		p := &policy.Several{Motion: a.motion(), V2: a.Apart()}
		p.Count = a.Whole("num_ops", 0, 100)
		p.Offers = a.offers(func() []policy.Offer {
			return policy.RandAugmentOffers(bins, magnitude)
		})
		return planned{p}
	},
}

// mostBins is how many magnitudes an operation may have.
const mostBins = 1 << 12

// TrivialAugmentWide applies one random operation of a random magnitude.
//
//	num_magnitude_bins, interpolation, fill, draws  as RandAugment's
//	operations  as RandAugment's, with all magnitudes of which one is drawn
var trivialAugmentWide = kind{
	name: "TrivialAugmentWide",
	params: []param{
		{"num_magnitude_bins", "31"},
		{"interpolation", `"nearest"`},
		{"fill", "null"},
		{"draws", `"v1"`},
		{"operations", "null"},
	},
	build: func(a *arguments) step {
		bins := a.Whole("num_magnitude_bins", 2, mostBins)
		p := &policy.Several{Count: 1, Motion: a.motion(), V2: a.Apart()}
		p.Offers = a.offers(func() []policy.Offer { return policy.TrivialAugmentOffers(bins) })
		return planned{p}
	},
}

// AutoAugment applies the operations of a random sub-policy, each with its probability.
//
//	policy               "imagenet", "cifar10" or "svhn"
//	interpolation, fill  as RandAugment's
//	draws                "v1": all probabilities and signs first, as torchvision's v1; "v2": each
//	                     when it is needed, as its v2
//	policies             in the place of policy: lists of policy.Offer
var autoAugment = kind{
	name: "AutoAugment",
	params: []param{
		{"policy", `"imagenet"`},
		{"interpolation", `"nearest"`},
		{"fill", "null"},
		{"draws", `"v1"`},
		{"policies", "null"},
	},
	build: func(a *arguments) step {
		name := a.Choice("policy", "imagenet", "cifar10", "svhn")
		p := &policy.SubPolicies{Motion: a.motion(), V2: a.Apart()}
		if a.None("policies") {
			p.Policies = policy.Published(name)
			return planned{p}
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
		return planned{p}
	},
}

// TimmRandAugment applies layers operations, each drawn of a list, as timm's RandAugment.
//
//	operations  a list of policy.Level
//	layers      the number of operations
//	pillow      the installed release of Pillow, from 13 on of which posterizing to 0 bits is an
//	            error
var timmRandAugment = kind{
	name:   "TimmRandAugment",
	help:   "timm's RandAugment, of rand_augment_transform",
	params: []param{{"operations", ""}, {"layers", "2"}, {"pillow", "12"}},
	build: func(a *arguments) step {
		p := &policy.Layers{Count: a.Whole("layers", 0, 100), Strict: a.Strict()}
		if a.List("operations", &p.Levels); len(p.Levels) == 0 {
			a.Fault("operations", "it must not be empty")
		}
		return planned{p}
	},
}

// TimmAutoAugment applies the operations of a random sub-policy, as timm's AutoAugment.
//
//	policies  lists of policy.Level
//	pillow    as TimmRandAugment's
var timmAutoAugment = kind{
	name:   "TimmAutoAugment",
	help:   "timm's AutoAugment, of auto_augment_transform",
	params: []param{{"policies", ""}, {"pillow", "12"}},
	build: func(a *arguments) step {
		p := &policy.TimmPolicies{Strict: a.Strict()}
		if a.List("policies", &p.Policies); len(p.Policies) == 0 {
			a.Fault("policies", "it must not be empty")
		}
		return planned{p}
	},
}

// offers returns the argument operations of torchvision's policies; if it is not given, otherwise.
func (a *arguments) offers(otherwise func() []policy.Offer) (list []policy.Offer) {
	if a.None("operations") {
		return otherwise()
	}
	if a.List("operations", &list); len(list) == 0 {
		a.Fault("operations", "it must not be empty")
	}
	return list
}

// planned applies what a policy draws.
type planned struct{ policy policy.Policy }

func (s planned) follow(k *known) error {
	if s.policy.Channels() > k.channels {
		return errors.New("fill has three numbers, and images have one channel")
	}
	return k.image()
}

func (s planned) apply(v *view, d *draws) error {
	width, height := v.size()
	return s.policy.Draw(d, width, height, v.act)
}
