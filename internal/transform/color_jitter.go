package transform

import (
	"encoding/json"
	"strings"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
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
	build: func(a *arguments) step {
		return jitter{[4]span{
			a.span("brightness", 1, 0, 1e6), a.span("contrast", 1, 0, 1e6),
			a.span("saturation", 1, 0, 1e6), a.span("hue", 0, -0.5, 0.5),
		}}
	},
}

// span is the interval that a factor is drawn from.
type span struct {
	from, to float64
	on       bool
}

// span returns an argument that is null, one number (the largest distance from the centre) or
// [least, most].
func (a *arguments) span(name string, center, least, most float64) span {
	raw, given := a.Given[name]
	if !given || strings.TrimSpace(string(raw)) == "null" {
		return span{}
	}
	var s span
	var far float64
	if json.Unmarshal(raw, &far) == nil {
		if far < 0 || far > most {
			a.Fault(name, "it must be a number from 0 to %v, or [least, most] within [%v, %v]",
				most, least, most)
			return span{}
		}
		s = span{from: max(center-far, least), to: center + far}
	} else {
		s.from, s.to = a.Pair(name, least, most)
	}
	s.on = s.from != center || s.to != center
	return s
}

type jitter struct{ spans [4]span }

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
		if span.on {
			factors[i] = float64(d.Torch.Uniform(float32(span.from), float32(span.to)))
		}
	}
	img, err := v.pixels()
	if err != nil {
		return err
	}
	names := [4]string{"brightness", "contrast", "saturation", "hue"}
	for _, i := range order {
		if !s.spans[i].on {
			continue
		}
		v.note(Param{names[i], factors[i]})
		if i == brightness || i == contrast || i == hue && img.Channels == 3 {
			v.bare = true
		}
		switch factor := float32(factors[i]); i {
		case brightness:
			pixels.Brightness(img, factor)
		case contrast:
			pixels.Contrast(img, factor)
		case saturation:
			v.grayed = true
			pixels.Color(img, factor)
		case hue:
			// As numpy's uint8, a negative number wraps.
			pixels.Hue(img, byte(int(factors[i]*255)))
		}
	}
	return nil
}
