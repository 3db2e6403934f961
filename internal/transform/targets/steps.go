package targets

import (
	"slices"

	"github.com/hdmlp/hdmlp/internal/transform/codec"
	"github.com/hdmlp/hdmlp/internal/transform/describe"
	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// An Entry is a transform of boxes alone: its name, its parameters, and what it does for its
// arguments.
type Entry struct {
	Name   string
	Params []describe.Param
	Build  func(a *describe.Arguments) func(s *Set)
}

// Entries lists the transforms of boxes.
var Entries = []Entry{sanitize, clamp, convert}

// SanitizeBoundingBoxes removes boxes that are too small, or reach outside of the image, with their
// labels.
//
//	min_size  the least width and height, in pixels, at least 1
//	min_area  the least area, in pixels, at least 1
var sanitize = Entry{
	Name:   "SanitizeBoundingBoxes",
	Params: []describe.Param{{"min_size", "1"}, {"min_area", "1"}},
	Build: func(a *describe.Arguments) func(s *Set) {
		size, area := float32(a.Number("min_size", 1, 1e6)), float32(a.Number("min_area", 1, 1e12))
		return func(s *Set) { s.Sanitize(size, area) }
	},
}

// ClampBoundingBoxes clamps boxes to the image.
var clamp = Entry{
	Name:  "ClampBoundingBoxes",
	Build: func(*describe.Arguments) func(s *Set) { return (*Set).Clamp },
}

// ConvertBoundingBoxFormat converts boxes to another format.
//
//	format  XYXY, XYWH or CXCYWH
var convert = Entry{
	Name:   "ConvertBoundingBoxFormat",
	Params: []describe.Param{{"format", ""}},
	Build: func(a *describe.Arguments) func(s *Set) {
		to := Format(slices.Index(Formats, a.Choice("format", Formats...)))
		return func(s *Set) { s.Convert(to) }
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
