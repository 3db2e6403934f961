package transform

import (
	"errors"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// ToTensor converts an image to a tensor, with levels scaled to numbers from 0 to 1.
//
//	dtype   float32, float16 or bfloat16; uint8 keeps the levels, as torchvision's PILToTensor
//	layout  NCHW, torch's; or NHWC
var toTensor = kind{
	name:   "ToTensor",
	params: []param{{"layout", `"NCHW"`}, {"dtype", `"float32"`}},
	build: func(a *arguments) step {
		s := tensored{dtype: a.dtype("dtype")}
		if a.Choice("layout", "NCHW", "NHWC") == "NHWC" {
			s.layout = pixels.HWC
		}
		return s
	},
}

type tensored struct {
	dtype  pixels.Type
	layout pixels.Layout
}

// dtype returns an argument that is torch's name of a type.
func (a *arguments) dtype(name string) pixels.Type {
	all := []pixels.Type{pixels.Uint8, pixels.Float16, pixels.BFloat16, pixels.Float32}
	names := make([]string, len(all))
	for i, t := range all {
		names[i] = t.String()
	}
	chosen := a.Choice(name, names...)
	for _, t := range all {
		if t.String() == chosen {
			return t
		}
	}
	return pixels.Float32
}

func (s tensored) follow(k *known) error {
	if k.stage == tensor {
		return errors.New("the list already has a ToTensor before it")
	}
	if err := k.image(); err != nil {
		return err
	}
	k.stage = tensor
	k.target = pixels.Target{Type: s.dtype, Layout: s.layout, Unit: s.dtype != pixels.Uint8}
	return nil
}
