package transform

import (
	"errors"
	"fmt"

	"github.com/hdmlp/hdmlp/internal/transform/arrays"
)

// Reshape declares that a sample is not an image but consists of exactly the elements of an array
// of w x h x c, in C order. It is the thesis's transform for scientific data.
//
//	w, h, c  the array's shape
//	dtype    of the elements, little endian: float32, int16, uint16 or uint8
var reshape = kind{
	name:   "Reshape",
	help:   "take a sample's bytes as an array of w x h x c numbers; the thesis's",
	params: []param{{"w", ""}, {"h", ""}, {"c", ""}, {"dtype", `"float32"`}},
	build: func(a *arguments) step {
		s := reshaped{dtype: a.Choice("dtype", "float32", "int16", "uint16", "uint8")}
		for i, name := range []string{"w", "h", "c"} {
			s.shape[i] = a.Whole(name, 1, maxOutput)
		}
		return s
	},
}

type reshaped struct {
	shape [3]int
	dtype string
}

func (s reshaped) follow(k *known) error {
	if k.stage != encoded {
		return errors.New("it takes a sample's bytes as they are and must come first " +
			"of the list")
	}
	a := &arrays.Array{Shape: s.shape, From: s.dtype}
	if float64(s.shape[0])*float64(s.shape[1])*float64(s.shape[2])*4 > maxOutput {
		return fmt.Errorf("%d x %d x %d elements are too many; the output of a sample is "+
			"limited to %d MiB",
			s.shape[0], s.shape[1], s.shape[2], maxOutput>>20)
	}
	k.stage, k.array = raw, a
	return nil
}
