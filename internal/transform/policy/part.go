package policy

import (
	"image"
	"math"

	"github.com/hdmlp/hdmlp/internal/transform/describe"
	"github.com/hdmlp/hdmlp/internal/transform/random"
)

// Part draws a part of an image, of random area and aspect ratio.
type Part struct {
	Scale, Ratio [2]float64 // of the area, as a share of the image's; width / height
	Logs         [2]float32 // of Ratio
	Timm         bool       // numbers are drawn as timm does
}

// ReadPart reads the arguments scale, ratio, draws and log_ratio.
func ReadPart(a *describe.Arguments) (s Part) {
	s.Scale[0], s.Scale[1] = a.Pair("scale", 0, 1e6)
	s.Ratio[0], s.Ratio[1] = a.Pair("ratio", 1e-6, 1e6)
	s.Timm = a.Choice("draws", "torchvision", "timm") == "timm"
	s.Logs = a.Logs("log_ratio", s.Ratio)
	return s
}

// Attempt is an area and an aspect ratio that were drawn for a part. torch's exponential gives the
// ratio or one of the two float32 beside it: which differs between releases, processors and
// libraries.
type Attempt struct {
	Ratio         float64
	area          float64
	before, after float64
}

// Attempt draws as torchvision does, in float32 and then in float64; or as timm, in float64.
func (s *Part) Attempt(area float64, d *random.Draws) (a Attempt) {
	if s.Timm {
		a.area = d.Python.Uniform(s.Scale[0], s.Scale[1]) * area
		a.Ratio = math.Exp(d.Python.Uniform(math.Log(s.Ratio[0]), math.Log(s.Ratio[1])))
		a.before, a.after = a.Ratio, a.Ratio
		return a
	}
	a.area = area * float64(d.Torch.Uniform(float32(s.Scale[0]), float32(s.Scale[1])))
	ratio := float32(math.Exp(float64(d.Torch.Uniform(s.Logs[0], s.Logs[1]))))
	a.Ratio = float64(ratio)
	a.before = float64(math.Nextafter32(ratio, 0))
	a.after = float64(math.Nextafter32(ratio, math.MaxFloat32))
	return a
}

// Sides returns the width and height of a part with the area and the ratio, and whether they are
// the same for the float32 beside the ratio.
func (a *Attempt) Sides() (sides image.Point, sure bool) {
	sides = a.sides(a.Ratio)
	return sides, a.sides(a.before) == sides && a.sides(a.after) == sides
}

// sides returns the width and height of a part with the area and this ratio.
func (a *Attempt) sides(ratio float64) image.Point {
	return image.Pt(rounded(math.Sqrt(a.area*ratio)), rounded(math.Sqrt(a.area/ratio)))
}

// place draws where a part lies that is smaller by these numbers of pixels.
func (s *Part) place(across, down int, d *random.Draws) (at image.Point) {
	if s.Timm {
		at.Y = d.Python.Below(down + 1)
		at.X = d.Python.Below(across + 1)
		return at
	}
	at.Y = d.Torch.Below(down + 1)
	at.X = d.Torch.Below(across + 1)
	return at
}

// Draw draws the part of a width x height image (get_params of torchvision and timm): ten attempts,
// and then the largest centre crop that ratio allows, which may be empty; with timm, whose attempts
// may have sides of 0 pixels, the others as well. sure is false if a side depends on how torch
// rounds an exponential.
func (s *Part) Draw(width, height int, d *random.Draws) (part image.Rectangle, sure bool) {
	sure = true
	least := 1
	if s.Timm {
		least = 0
	}
	for range 10 {
		a := s.Attempt(float64(width*height), d)
		sides, same := a.Sides()
		sure = sure && same
		if least <= sides.X && sides.X <= width && least <= sides.Y && sides.Y <= height {
			at := s.place(width-sides.X, height-sides.Y, d)
			return image.Rectangle{Min: at, Max: at.Add(sides)}, sure
		}
	}
	w, h := width, height
	switch ratio := float64(width) / float64(height); {
	case ratio < s.Ratio[0]:
		h = rounded(float64(w) / s.Ratio[0])
	case ratio > s.Ratio[1]:
		w = rounded(float64(h) * s.Ratio[1])
	}
	left, top := (width-w)/2, (height-h)/2
	return image.Rect(left, top, left+w, top+h), sure
}

func rounded(x float64) int { return int(math.RoundToEven(x)) }
