package transform

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
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
			s.shape[i] = a.Whole(name, 1, 1<<20)
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
	a := &array{shape: s.shape, from: s.dtype}
	if float64(s.shape[0])*float64(s.shape[1])*float64(s.shape[2])*4 > maxOutput {
		return fmt.Errorf("%d x %d x %d elements are too many; the output of a sample is "+
			"limited to %d MiB",
			s.shape[0], s.shape[1], s.shape[2], maxOutput>>20)
	}
	k.stage, k.array = raw, a
	return nil
}

// array describes the input and output of samples that are arrays.
type array struct {
	shape        [3]int
	from         string
	scale, shift []float32 // (x - shift) * scale, one per place along the last axis; nil: none
}

// check returns an error if the output type is not supported.
func (a *array) check() error {
	if a.scale == nil && (a.from == "int16" || a.from == "uint16") {
		return fmt.Errorf("transforms: tensors of %s are not supported; add ScaleShift16 after "+
			"Reshape, which makes float32 of them", a.from)
	}
	return nil
}

// to returns the type of the output.
func (a *array) to() pixels.Type {
	if a.scale == nil && a.from == "uint8" {
		return pixels.Uint8
	}
	return pixels.Float32
}

// size returns the size of an element of the sample, in bytes.
func (a *array) size() int {
	switch a.from {
	case "uint8":
		return 1
	case "int16", "uint16":
		return 2
	}
	return 4
}

func (a *array) apply(dst, src []byte) error {
	n := a.shape[0] * a.shape[1] * a.shape[2]
	if len(src) != n*a.size() {
		return fmt.Errorf("the sample has %d bytes; an array of %d x %d x %d %s has %d",
			len(src), a.shape[0], a.shape[1], a.shape[2], a.from, n*a.size())
	}
	if a.scale == nil {
		copy(dst, src)
		return nil
	}
	for i, c := 0, 0; i < n; i++ {
		x := float32(a.element(src, i)-a.shift[c]) * a.scale[c]
		binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(x))
		if c++; c == a.shape[2] {
			c = 0
		}
	}
	return nil
}

// element returns element i of the sample.
func (a *array) element(src []byte, i int) float32 {
	switch a.from {
	case "uint8":
		return float32(src[i])
	case "int16":
		return float32(int16(binary.LittleEndian.Uint16(src[2*i:])))
	case "uint16":
		return float32(binary.LittleEndian.Uint16(src[2*i:]))
	}
	return math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
}
