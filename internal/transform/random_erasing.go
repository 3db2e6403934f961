package transform

import (
	"errors"
	"image"

	"github.com/hdmlp/hdmlp/internal/transform/left"
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
	build: func(a *arguments) step { return erasing{policy.ReadErasing(&a.Arguments)} },
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
	build: func(a *arguments) step { return erasing{policy.ReadTimmErasing(&a.Arguments)} },
}

// A patch is a rectangle of the tensor that becomes something else.
type patch struct {
	at    image.Rectangle
	index int // of the step whose patch it is, in its list
	value []float32
	// The elements in the order (channel, row, column), or one for each channel, are
	// Worker.noise[from:], of which there are several if it is noise.
	noise policy.Noise
	from  int
}

type erasing struct{ policy.Eraser }

func (erasing) erases() {}

func (s erasing) follow(k *known) error {
	value, noise := s.Content()
	switch {
	case k.stage != tensor:
		return errors.New("it works on tensors, and needs ToTensor before it")
	case noise != policy.NoNoise && k.target.Type == pixels.Uint8:
		return errors.New("its random values are not levels; add ConvertImageDtype before it")
	case len(value) > k.channels:
		return errors.New("value has three numbers, and images have one channel")
	}
	k.erased = append(k.erased, k.target)
	return nil
}

func (s erasing) apply(v *view, d *draws) error {
	w := v.w
	width, height := v.size()
	sure := s.Erase(d, width, height, func(size image.Point) func(left, top int) {
		p := patch{at: image.Rectangle{Max: size}, index: w.index, from: len(w.noise)}
		p.value, p.noise = s.Content()
		switch channels := w.known.channels; p.noise {
		case policy.PerChannel:
			w.noise = d.Torch.Normal(w.noise, channels)
		case policy.PerElement:
			w.noise = d.Torch.Normal(w.noise, channels*size.X*size.Y)
		}
		return func(left, top int) { v.erase(p, left, top) }
	})
	if !sure && w.program.known.leaves() {
		return left.ErrRounding
	}
	return nil
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
		case policy.NoNoise:
			e.Fill(dst, area, patch.value)
		case policy.PerChannel:
			e.Fill(dst, area, w.noise[patch.from:][:area.Channels])
		case policy.PerElement:
			e.Copy(dst, area, w.noise[patch.from:])
		}
	}
}
