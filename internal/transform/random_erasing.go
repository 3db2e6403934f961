package transform

import (
	"errors"
	"image"
	"math"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
	"github.com/hdmlp/hdmlp/internal/transform/policy"
)

// RandomErasing sets a random rectangle of a tensor to a value, with probability p (in float32).
//
//	p          the probability
//	scale      [least, most] of the rectangle's area, as a share of the image's
//	ratio      [least, most] of height / width; its logarithm is uniform
//	value      a number, or one for each channel; "random": each element is drawn from a normal
//	           distribution, as torch's normal_ within 1e-5
//	inplace    has no effect
//	log_ratio  as RandomResizedCrop's
var randomErasing = kind{
	name: "RandomErasing",
	params: []param{
		{"p", "0.5"},
		{"scale", "[0.02, 0.33]"},
		{"ratio", "[0.3, 3.3]"},
		{"value", "0"},
		{"inplace", "false"},
		{"log_ratio", "null"},
	},
	build: func(a *arguments) step {
		a.Flag("inplace")
		s := &erasing{p: a.Chance("p")}
		s.part.Scale[0], s.part.Scale[1] = a.Pair("scale", 0, 1)
		s.part.Ratio[0], s.part.Ratio[1] = a.Pair("ratio", 1e-6, 1e6)
		s.part.Logs = a.Logs("log_ratio", s.part.Ratio)
		if text := ""; a.Text("value", &text) {
			s.noise = perElement
			if text != "random" {
				a.Fault("value", `it must be a number, one for each channel, or "random"`)
			}
			return s
		}
		s.value = a.Float32s("value")
		return s
	},
}

// TimmRandomErasing sets random rectangles of a tensor to a value, as timm's RandomErasing.
//
//	p             the probability
//	area          [least, most] of all rectangles' area, as a share of the image's
//	log_aspect    [least, most] of the logarithm of height / width
//	mode          "const": 0; "rand": a random colour; "pixel": each element is drawn
//	count         [least, most] of the number of rectangles
var timmRandomErasing = kind{
	name: "TimmRandomErasing",
	help: "timm's RandomErasing of one image",
	params: []param{
		{"p", "0.5"},
		{"area", "[0.02, 0.3333333333333333]"},
		{"log_aspect", "[-1.2039728043259361, 1.2039728043259361]"},
		{"mode", `"const"`},
		{"count", "[1, 1]"},
	},
	build: func(a *arguments) step {
		s := &timmErasing{p: a.Number("p", 0, 1), value: []float32{0}}
		s.area[0], s.area[1] = a.Pair("area", 0, 1e6)
		s.logs[0], s.logs[1] = a.Pair("log_aspect", -20, 20)
		switch a.Choice("mode", "const", "rand", "pixel") {
		case "rand":
			s.noise = perChannel
		case "pixel":
			s.noise = perElement
		}
		count := a.Wholes("count", 0, 1000, "[least, most]", 2)
		if len(count) == 2 {
			s.least, s.most = count[0], max(count[0], count[1])
		}
		return s
	},
}

// noise is what is drawn for a rectangle in the place of a value.
type noise uint8

const (
	noNoise noise = iota
	perChannel
	perElement
)

// A patch is a rectangle of the tensor that becomes something else.
type patch struct {
	at    image.Rectangle
	index int // of the step whose patch it is, in its list
	value []float32
	// The elements in the order (channel, row, column), or one for each channel, are
	// Worker.noise[from:], of which there are several if it is noise.
	noise noise
	from  int
}

func (*erasing) erases()     {}
func (*timmErasing) erases() {}

// followErasing is what the two kinds of steps have in common.
func followErasing(k *known, n noise, value []float32) error {
	switch {
	case k.stage != tensor:
		return errors.New("it works on tensors, and needs ToTensor before it")
	case n != noNoise && k.target.Type == pixels.Uint8:
		return errors.New("its random values are not levels; add ConvertImageDtype before it")
	case len(value) > k.channels:
		return errors.New("value has three numbers, and images have one channel")
	}
	k.erased = append(k.erased, k.target)
	return nil
}

type erasing struct {
	p     float32
	part  policy.Part
	value []float32
	noise noise
}

func (s *erasing) follow(k *known) error { return followErasing(k, s.noise, s.value) }

func (s *erasing) apply(v *view, d *draws) error {
	if d.Torch.Rand() >= s.p {
		return nil
	}
	width, height := v.size()
	for range 10 {
		a := s.part.Attempt(float64(width*height), d)
		sides, sure := a.Sides() // its X is the height here
		if !sure && v.w.program.known.leaves() {
			return errRounding
		}
		if sides.X >= height || sides.Y >= width {
			continue
		}
		p := v.patch(s.noise, s.value, image.Pt(sides.Y, sides.X), d)
		top := d.Torch.Below(height - sides.X + 1)
		left := d.Torch.Below(width - sides.Y + 1)
		v.erase(p, left, top)
		return nil
	}
	return nil
}

type timmErasing struct {
	p           float64
	area, logs  [2]float64
	value       []float32
	noise       noise
	least, most int
}

func (s *timmErasing) follow(k *known) error { return followErasing(k, s.noise, s.value) }

func (s *timmErasing) apply(v *view, d *draws) error {
	if d.Python.Random() > s.p {
		return nil
	}
	width, height := v.size()
	count := s.least
	if s.least != s.most {
		count += d.Python.Below(s.most - s.least + 1)
	}
	for range count {
		for range 10 {
			area := d.Python.Uniform(s.area[0], s.area[1]) * float64(width*height) / float64(count)
			ratio := math.Exp(d.Python.Uniform(s.logs[0], s.logs[1]))
			sides := image.Pt(round(math.Sqrt(area/ratio)), round(math.Sqrt(area*ratio)))
			if sides.X >= width || sides.Y >= height {
				continue
			}
			top := d.Python.Below(height - sides.Y + 1)
			left := d.Python.Below(width - sides.X + 1)
			v.erase(v.patch(s.noise, s.value, sides, d), left, top)
			break
		}
	}
	return nil
}

// patch returns a patch of this size, whose noise it draws.
func (v *view) patch(n noise, value []float32, size image.Point, d *draws) patch {
	w := v.w
	p := patch{
		at: image.Rectangle{Max: size}, index: w.index, value: value, noise: n, from: len(w.noise),
	}
	channels := w.known.channels
	switch n {
	case perChannel:
		w.noise = d.Torch.Normal(w.noise, channels)
	case perElement:
		w.noise = d.Torch.Normal(w.noise, channels*size.X*size.Y)
	}
	return p
}

// erase records a patch, at this place.
func (v *view) erase(p patch, left, top int) {
	p.at = p.at.Add(image.Pt(left, top))
	v.note(
		Param{"top", float64(top)},
		Param{"left", float64(left)},
		Param{"height", float64(p.at.Dy())},
		Param{"width", float64(p.at.Dx())},
	)
	v.w.patches = append(v.w.patches, p)
}

// eraseNothing forgets the patches of an earlier tensor.
func (w *Worker) eraseNothing() {
	w.patches = w.patches[:0]
	w.noise = w.noise[:0]
}

// erase applies the patches to a tensor in their order. erasers are those of the list's steps.
func (w *Worker) erase(dst []byte, erasers []*pixels.Eraser) {
	k := w.known
	for _, patch := range w.patches {
		e := erasers[patch.index]
		area := pixels.Area{
			Rectangle: patch.at, Width: k.width, Height: k.height, Channels: k.channels,
		}
		switch patch.noise {
		case noNoise:
			e.Fill(dst, area, patch.value)
		case perChannel:
			e.Fill(dst, area, w.noise[patch.from:][:area.Channels])
		case perElement:
			e.Copy(dst, area, w.noise[patch.from:])
		}
	}
}
