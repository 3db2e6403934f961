package transform

import (
	"github.com/hdmlp/hdmlp/internal/transform/describe"
	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// RandomPhotometricDistort changes brightness, contrast, saturation and hue as ColorJitter, each
// with probability p (in float32), contrast before or after the others, and permutes channels with
// probability p.
//
//	brightness, contrast, saturation  [least, most] of the factor
//	hue                               [least, most] of the shift
//	p                                 the probability of each
var randomPhotometricDistort = kind{
	name: "RandomPhotometricDistort",
	params: []param{
		{"brightness", "[0.875, 1.125]"},
		{"contrast", "[0.5, 1.5]"},
		{"saturation", "[0.5, 1.5]"},
		{"hue", "[-0.05, 0.05]"},
		{"p", "0.5"},
	},
	joint: ofImages,
	build: func(a *arguments) step {
		s := distorted{p: a.Chance("p")}
		for i := range colours {
			least, most := 0.0, 1e6
			if i == hue {
				least, most = -0.5, 0.5
			}
			s.spans[i].From, s.spans[i].To = a.Pair(colours[i].name, least, most)
		}
		return s
	},
}

type distorted struct {
	spans [4]describe.Span
	p     float32
}

func (s distorted) follow(k *known) error { return k.image() }

func (s distorted) apply(v *view, d *draws) error {
	img, err := v.pixels()
	if err != nil {
		return err
	}
	var factors [4]float64
	var drawn [4]bool
	for i, span := range s.spans {
		if drawn[i] = d.Torch.Rand() < s.p; drawn[i] {
			factors[i] = float64(d.Torch.Uniform(float32(span.From), float32(span.To)))
		}
	}
	order := [4]int{brightness, saturation, hue, contrast}
	if d.Torch.Rand() < 0.5 {
		order = [4]int{brightness, contrast, saturation, hue}
	}
	for _, i := range order {
		if drawn[i] {
			v.tint(img, i, factors[i])
		}
	}
	if d.Torch.Rand() < s.p {
		p := make([]int, img.Channels)
		d.Torch.Permute(p)
		v.bare = true
		pixels.Permute(img, p)
	}
	return nil
}
