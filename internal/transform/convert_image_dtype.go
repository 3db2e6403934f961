package transform

import (
	"errors"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// ConvertImageDtype converts a tensor to another type. Between levels and numbers from 0 to 1 it
// scales them.
//
//	dtype  uint8, float16, bfloat16 or float32
//	scale  of levels: divide by 255; multiply by 1/255, as torchvision's v2; or none
var convertImageDtype = kind{
	name:   "ConvertImageDtype",
	params: []param{{"dtype", `"float32"`}, {"scale", `"divide"`}},
	joint:  ofAll,
	build: func(a *arguments) step {
		scale := a.Choice("scale", "divide", "multiply", "none")
		return converted{a.Type("dtype"), scales[scale]}
	},
}

var scales = map[string]pixels.Scale{"divide": pixels.Quotient, "multiply": pixels.Product}

type converted struct {
	dtype pixels.Type
	scale pixels.Scale
}

func (s converted) follow(k *known) error {
	t := &k.target
	switch {
	case k.stage == raw:
		return errors.New("it works on tensors of images, and Reshape makes arrays")
	case k.stage != tensor:
		return errors.New("it works on tensors, and needs ToTensor before it")
	case s.dtype == t.Type:
		return nil
	case t.Type == pixels.Uint8:
		t.Scale = s.scale
	case s.dtype == pixels.Uint8 && len(t.Mean) > 0:
		return errors.New("the output of Normalize cannot be converted to uint8")
	case s.dtype == pixels.Uint8 && len(k.erased) > 0 && t.Type != pixels.Uint8:
		return errors.New("the output of RandomErasing cannot be converted to uint8")
	case s.dtype == pixels.Uint8 && t.Scale == pixels.Levels:
		return errors.New("numbers that were not scaled cannot be converted to uint8")
	case s.dtype == pixels.Uint8:
		t.Scale, t.Arithmetic = pixels.Levels, pixels.Uint8
	case t.Type == pixels.Float32: // which it is without rounding
	case t.Arithmetic == t.Type || t.Arithmetic == pixels.Uint8 && len(t.Mean) == 0:
		t.Arithmetic = t.Type
	default:
		return errors.New("the list has rounded the tensor before it, and another rounding is not " +
			"supported; leave a conversion out")
	}
	t.Type = s.dtype
	return nil
}
