package transform

import (
	"errors"
	"fmt"

	"github.com/hdmlp/hdmlp/internal/transform/describe"
)

// ScaleShift16 replaces every element x of an array by (x - shift) * scale, in float32. It is the
// original's transform for climate data with 16 channels on the array's last axis. (The original's
// code multiplies by shift, which contradicts its callers: they pass shift = least and scale = 1 /
// (most - least).)
//
//	scale, shift  a number for each place along the last axis, or one for all
var scaleShift16 = kind{
	name:   "ScaleShift16",
	help:   "(x - shift) * scale for each element of an array, after Reshape; the thesis's",
	params: []param{{"scale", ""}, {"shift", ""}},
	build: func(a *arguments) step {
		return scaled{a.PerPlace("scale"), a.PerPlace("shift")}
	},
}

type scaled struct{ scale, shift []float32 }

func (s scaled) follow(k *known) error {
	if k.stage != raw {
		return errors.New("it works on arrays, and needs Reshape before it")
	}
	if k.array.Scale != nil {
		return errors.New("the list already has a ScaleShift16 before it")
	}
	c := k.array.Shape[2]
	for _, list := range [][]float32{s.scale, s.shift} {
		if len(list) != 1 && len(list) != c {
			return fmt.Errorf("scale and shift have %d and %d numbers, and the array's last "+
				"axis has %d", len(s.scale), len(s.shift), c)
		}
	}
	k.array.Scale, k.array.Shift = describe.Spread(s.scale, c), describe.Spread(s.shift, c)
	return nil
}
