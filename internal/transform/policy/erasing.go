package policy

import (
	"image"
	"math"

	"github.com/hdmlp/hdmlp/internal/transform/describe"
	"github.com/hdmlp/hdmlp/internal/transform/random"
)

// An Eraser draws rectangles of a tensor of width x height pixels. It is immutable.
type Eraser interface {
	// Erase calls erase with each rectangle's size, which then draws its noise, and after that place
	// with where it lies. sure is false if that depends on how torch rounds an exponential.
	Erase(d *random.Draws, width, height int, erase func(size image.Point) (place func(left,
		top int))) (sure bool)
	// Content returns what rectangles become: values of the channels, or noise in their place.
	Content() ([]float32, Noise)
}

// Noise is what is drawn for a rectangle in the place of a value.
type Noise uint8

// Noises: none; a number for each channel, or for each element.
const (
	NoNoise Noise = iota
	PerChannel
	PerElement
)

// ReadErasing returns the arguments of torchvision's RandomErasing.
func ReadErasing(a *describe.Arguments) Eraser {
	a.Flag("inplace")
	s := &erasing{p: a.Chance("p")}
	s.part.Scale[0], s.part.Scale[1] = a.Pair("scale", 0, 1)
	s.part.Ratio[0], s.part.Ratio[1] = a.Pair("ratio", 1e-6, 1e6)
	s.part.Logs = a.Logs("log_ratio", s.part.Ratio)
	if text := ""; a.Text("value", &text) {
		s.noise = PerElement
		if text != "random" {
			a.Fault("value", `it must be a number, one for each channel, or "random"`)
		}
		return s
	}
	s.value = a.Float32s("value")
	return s
}

// ReadTimmErasing returns those of timm's.
func ReadTimmErasing(a *describe.Arguments) Eraser {
	s := &timmErasing{p: a.Number("p", 0, 1)}
	s.value = []float32{0}
	s.area[0], s.area[1] = a.Pair("area", 0, 1e6)
	s.logs[0], s.logs[1] = a.Pair("log_aspect", -20, 20)
	switch a.Choice("mode", "const", "rand", "pixel") {
	case "rand":
		s.noise = PerChannel
	case "pixel":
		s.noise = PerElement
	}
	count := a.Wholes("count", 0, 1000, "[least, most]", 2)
	if len(count) == 2 {
		s.least, s.most = count[0], max(count[0], count[1])
	}
	return s
}

// content is what rectangles become.
type content struct {
	value []float32
	noise Noise
}

func (c *content) Content() ([]float32, Noise) { return c.value, c.noise }

type erasing struct {
	content
	p    float32
	part Part
}

func (s *erasing) Erase(d *random.Draws, width, height int,
	erase func(image.Point) func(left, top int),
) (sure bool) {
	if d.Torch.Rand() >= s.p {
		return true
	}
	sure = true
	for range 10 {
		a := s.part.Attempt(float64(width*height), d)
		sides, same := a.Sides() // its X is the height here
		sure = sure && same
		if sides.X >= height || sides.Y >= width {
			continue
		}
		place := erase(image.Pt(sides.Y, sides.X))
		top := d.Torch.Below(height - sides.X + 1)
		left := d.Torch.Below(width - sides.Y + 1)
		place(left, top)
		return sure
	}
	return sure
}

type timmErasing struct {
	content
	p           float64
	area, logs  [2]float64
	least, most int
}

func (s *timmErasing) Erase(d *random.Draws, width, height int,
	erase func(image.Point) func(left, top int),
) (sure bool) {
	if d.Python.Random() > s.p {
		return true
	}
	count := s.least
	if s.least != s.most {
		count += d.Python.Below(s.most - s.least + 1)
	}
	for range count {
		for range 10 {
			area := d.Python.Uniform(s.area[0], s.area[1]) * float64(width*height) / float64(count)
			ratio := math.Exp(d.Python.Uniform(s.logs[0], s.logs[1]))
			sides := image.Pt(rounded(math.Sqrt(area/ratio)), rounded(math.Sqrt(area*ratio)))
			if sides.X >= width || sides.Y >= height {
				continue
			}
			place := erase(sides)
			top := d.Python.Below(height - sides.Y + 1)
			left := d.Python.Below(width - sides.X + 1)
			place(left, top)
			break
		}
	}
	return true
}
