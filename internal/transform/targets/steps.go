package targets

import (
	"fmt"
	"slices"

	"github.com/hdmlp/hdmlp/internal/transform/codec"
	"github.com/hdmlp/hdmlp/internal/transform/describe"
	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// An Entry is a transform of masks or boxes alone: its name, its parameters, and what it does for
// its arguments.
type Entry struct {
	Name   string
	Help   string // what it does, in a line; "" if torchvision has it
	Params []describe.Param
	Build  func(a *describe.Arguments) Step
}

// Step is what a transform does: for each sample, and, once, for what is known of the fields.
// Either may be nil.
type Step struct {
	Change func(s *Set)
	Types  func(in *Inputs) error
}

// Entries lists the transforms of masks and boxes.
var Entries = []Entry{convertDtype, sanitize, clamp, convert}

// ConvertMaskDtype converts masks to another type, as v2's ToDtype.
//
//	dtype  uint8, int32, int64 or float32
var convertDtype = Entry{
	Name:   "ConvertMaskDtype",
	Help:   "the type of masks, of v2's ToDtype",
	Params: []describe.Param{{"dtype", `"int64"`}},
	Build: func(a *describe.Arguments) Step {
		t := a.Types("dtype", pixels.Uint8, pixels.Int32, pixels.Int64, pixels.Float32)
		return Step{Types: func(in *Inputs) error {
			for _, input := range in.List {
				if input.IsMask() && input.Type != pixels.Bool && input.Type.Size() > t.Size() {
					return fmt.Errorf("masks of type %v do not fit into %v", input.Type, t)
				}
			}
			in.Mask, in.Typed = t, true
			return nil
		}}
	},
}

// SanitizeBoundingBoxes removes boxes that are too small, or reach outside of the image, with their
// labels.
//
//	min_size  the least width and height, in pixels, at least 1
//	min_area  the least area, in pixels, at least 1
var sanitize = Entry{
	Name:   "SanitizeBoundingBoxes",
	Params: []describe.Param{{"min_size", "1"}, {"min_area", "1"}},
	Build: func(a *describe.Arguments) Step {
		size, area := float32(a.Number("min_size", 1, 1e6)), float32(a.Number("min_area", 1, 1e12))
		return Step{Change: func(s *Set) { s.Sanitize(size, area) }}
	},
}

// ClampBoundingBoxes clamps boxes to the image.
var clamp = Entry{
	Name:  "ClampBoundingBoxes",
	Build: func(*describe.Arguments) Step { return Step{Change: (*Set).Clamp} },
}

// ConvertBoundingBoxFormat converts boxes to another format.
//
//	format  XYXY, XYWH or CXCYWH
var convert = Entry{
	Name:   "ConvertBoundingBoxFormat",
	Params: []describe.Param{{"format", ""}},
	Build: func(a *describe.Arguments) Step {
		to := Format(slices.Index(Formats, a.Choice("format", Formats...)))
		return Step{Change: func(s *Set) { s.Convert(to) }}
	},
}

// Types are the types of masks.
var Types = []pixels.Type{
	pixels.Uint8, pixels.Bool, pixels.Uint16, pixels.Int32, pixels.Int64, pixels.Float32,
}

// Depth returns the depth of masks that are decoded as a type.
func Depth(t pixels.Type) codec.Depth {
	switch t {
	case pixels.Bool:
		return codec.OneBit
	case pixels.Uint16, pixels.Int32:
		return codec.TwoBytes
	}
	return codec.EightBits
}
