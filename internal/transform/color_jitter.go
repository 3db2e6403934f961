package transform

import (
	"github.com/hdmlp/hdmlp/internal/transform/describe"
	"github.com/hdmlp/hdmlp/internal/transform/pixels"
	"github.com/hdmlp/hdmlp/internal/transform/policy"
)

// ColorJitter changes brightness, contrast and saturation as PIL's ImageEnhance does, and hue in
// PIL's HSV, in random order.
//
//	brightness, contrast, saturation
//	     [least, most] of the factor, or its largest distance from 1; 0: no change
//	hue
//	     [least, most] of the shift, within [-0.5, 0.5] of the circle, or its largest distance
//	     from 0
var colorJitter = kind{
	name:   "ColorJitter",
	params: []param{{"brightness", "0"}, {"contrast", "0"}, {"saturation", "0"}, {"hue", "0"}},
	joint:  ofImages,
	build: func(a *arguments) step {
		return jitter{[4]describe.Span{
			a.Span("brightness", 1, 0, 1e6), a.Span("contrast", 1, 0, 1e6),
			a.Span("saturation", 1, 0, 1e6), a.Span("hue", 0, -0.5, 0.5),
		}}
	},
}

type jitter struct{ spans [4]describe.Span }

// Indices of jitter's spans.
const (
	brightness = iota
	contrast
	saturation
	hue
)

func (s jitter) follow(k *known) error { return k.image() }

func (s jitter) apply(v *view, d *draws) error {
	var order [4]int
	d.Torch.Permute(order[:])
	var factors [4]float64
	for i, span := range s.spans {
		if span.On {
			factors[i] = float64(d.Torch.Uniform(float32(span.From), float32(span.To)))
		}
	}
	img, err := v.pixels()
	if err != nil {
		return err
	}
	for _, i := range order {
		if s.spans[i].On {
			v.tint(img, i, factors[i])
		}
	}
	return nil
}

// colours are what jitter changes.
var colours = [4]struct {
	name string
	kind policy.Kind
}{
	{"brightness", policy.Brightness},
	{"contrast", policy.Contrast},
	{"saturation", policy.Color},
	{"hue", policy.Hue},
}

// tint changes one of colours, of the pixels of the view.
func (v *view) tint(img *pixels.Image, i int, by float64) {
	v.note(Param{colours[i].name, by})
	v.change(img, colours[i].kind, by)
}
