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
	raw, given := a.given[name]
	if !given || strings.TrimSpace(string(raw)) == "null" {
		return span{}
	}
	var s span
	var far float64
	if json.Unmarshal(raw, &far) == nil {
		if far < 0 || far > most {
			a.fault(name, "it must be a number from 0 to %v, or [least, most] within [%v, %v]",
				most, least, most)
			return span{}
		}
		s = span{from: max(center-far, least), to: center + far}
	} else {
		s.from, s.to = a.pair(name, least, most)
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
	order := [4]int{0, 1, 2, 3}
	for i := range order {
		j := i + d.below(len(order)-i)
		order[i], order[j] = order[j], order[i]
	}
	var factors [4]float64
	for i, span := range s.spans {
		if span.on {
			factors[i] = float64(float32(d.uniform(span.from, span.to))) // as torch's
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
			blend(img, 0, factor)
		case contrast:
			blend(img, mean(img), factor)
		case saturation:
			v.grayed = true
			saturate(img, factor)
		case hue:
			// As numpy's uint8, a negative number wraps.
			turn(img, byte(int(factors[i]*255)))
		}
	}
	return nil
}

// mean returns the mean of an image's L, rounded as in ImageEnhance.Contrast.
func mean(m *pixels.Image) byte {
	return byte(float64(lumas(m))/float64(m.Width*m.Height) + 0.5)
}

// mix computes one sample of PIL's Image.blend, in float32 as PIL does.
func mix(a, b byte, factor float32) byte {
	return clip(float32(a) + float32(factor*float32(int(b)-int(a))))
}

// blend mixes an image with one level: 0 is the level alone, 1 the image alone.
func blend(m *pixels.Image, level byte, factor float32) {
	var table [256]byte
	for b := range table {
		table[b] = mix(level, byte(b), factor)
	}
	for y := range m.Height {
		row := m.Row(y)
		for i, b := range row {
			row[i] = table[b]
		}
	}
}

// saturate mixes an image with its gray version.
func saturate(m *pixels.Image, factor float32) {
	if m.Channels == 1 {
		return
	}
	// The product in mix for every difference, and every level as float32.
	var product [511]float32
	for d := range product {
		product[d] = factor * float32(d-255)
	}
	for y := range m.Height {
		for row := m.Row(y); len(row) >= 3; row = row[3:] {
			l := luma(row[0], row[1], row[2])
			level, from := float32(l), product[255-int(l):][:256]
			row[0] = clip(level + from[row[0]])
			row[1] = clip(level + from[row[1]])
			row[2] = clip(level + from[row[2]])
		}
	}
}

// clip converts a level to a byte and clips it, as PIL does.
func clip(v float32) byte {
	switch {
	case v <= 0:
		return 0
	case v >= 255:
		return 255
	}
	return byte(v)
}
