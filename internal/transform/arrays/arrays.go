// Package arrays converts samples that are arrays of numbers, and no images.
package arrays

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// Array describes the input and output of samples that are arrays.
type Array struct {
	Shape        [3]int
	From         string    // the type of the sample's elements: float32, int16, uint16 or uint8
	Scale, Shift []float32 // (x - shift) * scale, one per place along the last axis; nil: none
}

// Check returns an error if the output type is not supported.
func (a *Array) Check() error {
	if a.Scale == nil && (a.From == "int16" || a.From == "uint16") {
		return fmt.Errorf("transforms: tensors of %s are not supported; add ScaleShift16 after "+
			"Reshape, which makes float32 of them", a.From)
	}
	return nil
}

// Type returns the type of the output.
func (a *Array) Type() pixels.Type {
	if a.Scale == nil && a.From == "uint8" {
		return pixels.Uint8
	}
	return pixels.Float32
}

// size returns the size of an element of the sample, in bytes.
func (a *Array) size() int {
	switch a.From {
	case "uint8":
		return 1
	case "int16", "uint16":
		return 2
	}
	return 4
}

// Apply makes the output of a sample.
func (a *Array) Apply(dst, src []byte) error {
	n := a.Shape[0] * a.Shape[1] * a.Shape[2]
	if len(src) != n*a.size() {
		return fmt.Errorf("the sample has %d bytes; an array of %d x %d x %d %s has %d",
			len(src), a.Shape[0], a.Shape[1], a.Shape[2], a.From, n*a.size())
	}
	if a.Scale == nil {
		copy(dst, src)
		return nil
	}
	for i, c := 0, 0; i < n; i++ {
		x := float32(a.element(src, i)-a.Shift[c]) * a.Scale[c]
		binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(x))
		if c++; c == a.Shape[2] {
			c = 0
		}
	}
	return nil
}

// element returns element i of the sample.
func (a *Array) element(src []byte, i int) float32 {
	switch a.From {
	case "uint8":
		return float32(src[i])
	case "int16":
		return float32(int16(binary.LittleEndian.Uint16(src[2*i:])))
	case "uint16":
		return float32(binary.LittleEndian.Uint16(src[2*i:]))
	}
	return math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
}
