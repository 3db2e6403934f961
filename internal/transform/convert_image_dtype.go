package transform

import (
	"errors"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// ConvertImageDtype converts a tensor to another type, scaling between levels and numbers from 0 to
// 1. The transforms before it compute in float32, and the result is rounded once.
//
//	dtype  uint8, float16, bfloat16 or float32
var convertImageDtype = kind{
	name:   "ConvertImageDtype",
	params: []param{{"dtype", `"float32"`}},
	build:  func(a *arguments) step { return converted{a.dtype("dtype")} },
}

type converted struct{ dtype pixels.Type }

func (s converted) follow(k *known) error {
	switch {
	case k.stage == raw:
		return errors.New("it works on tensors of images, and Reshape makes arrays")
	case k.stage != tensor:
		return errors.New("it works on tensors, and needs ToTensor before it")
	case s.dtype == pixels.Uint8 && len(k.target.Mean) > 0:
		return errors.New("the output of Normalize cannot be converted to uint8")
	case s.dtype == pixels.Uint8 && len(k.erased) > 0 && k.target.Type != pixels.Uint8:
		return errors.New("the output of RandomErasing cannot be converted to uint8")
	default:
		k.target.Type, k.target.Unit = s.dtype, s.dtype != pixels.Uint8
	}
	return nil
}
