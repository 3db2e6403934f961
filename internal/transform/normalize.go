package transform

import (
	"errors"
	"fmt"

	"github.com/hdmlp/hdmlp/internal/transform/describe"
	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// Normalize subtracts mean from each channel of a tensor and divides by std, in the tensor's type.
//
//	mean, std  a number for each channel, or one for all; std not 0
//	inplace    has no effect
var normalize = kind{
	name:   "Normalize",
	params: []param{{"mean", ""}, {"std", ""}, {"inplace", "false"}},
	joint:  ofAll,
	build: func(a *arguments) step {
		a.Flag("inplace")
		s := normalized{a.Float32s("mean"), a.Float32s("std")}
		for _, v := range s.std {
			if v == 0 {
				a.Fault("std", "it must not be 0")
				break
			}
		}
		return s
	},
}

type normalized struct{ mean, std []float32 }

func (s normalized) follow(k *known) error {
	switch {
	case k.stage == raw:
		return errors.New("it works on tensors of images; for arrays there is ScaleShift16")
	case k.stage != tensor:
		return errors.New("it works on tensors, and needs ToTensor before it")
	case k.target.Type == pixels.Uint8:
		return errors.New("it works on floating point, and the tensor is uint8; add " +
			"ConvertImageDtype before it")
	case len(k.target.Mean) > 0:
		return errors.New("the list already has a Normalize before it")
	case len(s.mean) > k.channels || len(s.std) > k.channels:
		return fmt.Errorf("mean and std have %d and %d numbers, and images have %d channel",
			len(s.mean), len(s.std), k.channels)
	}
	if t := &k.target; t.Arithmetic != pixels.Uint8 {
		return errors.New("the list converts the tensor twice before it, which is not supported; " +
			"leave a conversion out")
	} else if t.Type != pixels.Float32 {
		t.Arithmetic = t.Type
	}
	n := max(len(s.mean), len(s.std))
	k.target.Mean, k.target.Std = describe.Spread(s.mean, n), describe.Spread(s.std, n)
	return nil
}
