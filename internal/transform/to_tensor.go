package transform

import (
	"errors"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// ToTensor converts an image to a tensor, with levels scaled to numbers from 0 to 1.
//
//	dtype   float32, float16 or bfloat16; uint8 keeps the levels, as torchvision's PILToTensor
//	layout  NCHW, torch's; or NHWC
//	memory_format  contiguous_format; or channels_last: NCHW, which lies in memory as NHWC
var toTensor = kind{
	name: "ToTensor",
	params: []param{
		{"layout", `"NCHW"`},
		{"dtype", `"float32"`},
		{"memory_format", `"contiguous_format"`},
	},
	joint: ofAll,
	build: func(a *arguments) step {
		s := tensored{dtype: a.Type("dtype")}
		if a.Choice("layout", "NCHW", "NHWC") == "NHWC" {
			s.layout = pixels.HWC
		}
		if a.Choice("memory_format", "contiguous_format", channelsLast) == channelsLast {
			if s.layout == pixels.HWC {
				a.Fault("memory_format", "it is for the layout NCHW")
			}
			s.channelsLast = true
		}
		return s
	},
}

// channelsLast is torch's name of the memory format.
const channelsLast = "channels_last"

type tensored struct {
	dtype        pixels.Type
	layout       pixels.Layout
	channelsLast bool
}

func (s tensored) follow(k *known) error {
	if k.stage == tensor {
		return errors.New("the list already has a ToTensor before it")
	}
	if err := k.image(); err != nil {
		return err
	}
	k.stage = tensor
	k.target = pixels.Target{Type: s.dtype, Layout: s.layout}
	if s.dtype != pixels.Uint8 {
		k.target.Scale = pixels.Quotient
	}
	if s.channelsLast {
		k.target.Layout, k.channelsLast = pixels.HWC, true
	}
	return nil
}
