package transform

import (
	"encoding/json"
	"math"
	"strings"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// ColorJitter changes brightness, contrast, saturation and hue, in random order, each as
// PIL's ImageEnhance does it, and hue in PIL's HSV.
//
//	brightness, contrast, saturation  [least, most] of the factor, or how far it may be from 1; 0: as it is
//	hue                               [least, most] of the shift, within [-0.5, 0.5] of the circle, or how
//	                                  far it may be from 0
var colorJitter = kind{
	name:   "ColorJitter",
	params: []param{{"brightness", "0"}, {"contrast", "0"}, {"saturation", "0"}, {"hue", "0"}},
	build: func(a *arguments) step {
		return jitter{[4]span{
			a.span("brightness", 1, 0, 1e6), a.span("contrast", 1, 0, 1e6), a.span("saturation", 1, 0, 1e6), a.span("hue", 0, -0.5, 0.5),
		}}
	},
}

// span is what a factor is drawn from.
type span struct {
	from, to float64
	on       bool
}

// span is an argument that is null, one number, how far from the centre, or two.
func (a *arguments) span(name string, center, least, most float64) span {
	raw, given := a.given[name]
	if !given || strings.TrimSpace(string(raw)) == "null" {
		return span{}
	}
	var s span
	var far float64
	if json.Unmarshal(raw, &far) == nil {
		if far < 0 || far > most {
			a.fault(name, "it must be a number from 0 to %v, or [least, most] within [%v, %v]", most, least, most)
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
		switch factor := float32(factors[i]); i {
		case 0:
			blend(img, 0, factor)
		case 1:
			blend(img, mean(img), factor)
		case 2:
			saturate(img, factor)
		case 3:
			// numpy's uint8 of a negative number, which wraps.
			turn(img, byte(int(factors[i]*255)))
		}
	}
	return nil
}

// mean is the mean of an image's L, as ImageEnhance.Contrast rounds it.
func mean(m *pixels.Image) byte {
	return byte(float64(lumas(m))/float64(m.Width*m.Height) + 0.5)
}

// mix is a sample of PIL's Image.blend, in float32 as there.
func mix(a, b byte, factor float32) byte {
	v := float32(a) + float32(factor*float32(int(b)-int(a)))
	switch {
	case v <= 0:
		return 0
	case v >= 255:
		return 255
	}
	return byte(v)
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

// saturate mixes an image with itself in gray.
func saturate(m *pixels.Image, factor float32) {
	if m.Channels == 1 {
		return
	}
	// mix's product for every difference, and the level in float32.
	var product [511]float32
	for d := range product {
		product[d] = factor * float32(d-255)
	}
	for y := range m.Height {
		for row := m.Row(y); len(row) >= 3; row = row[3:] {
			l := luma(row[0], row[1], row[2])
			for c, b := range row[:3] {
				row[c] = byte(min(max(float32(l)+product[int(b)-int(l)+255], 0), 255))
			}
		}
	}
}

// turn shifts the hue, in 256ths of the circle.
func turn(m *pixels.Image, shift byte) {
	if m.Channels == 1 {
		return
	}
	for y := range m.Height {
		for row := m.Row(y); len(row) >= 3; row = row[3:] {
			h, s, v := hsv(row[0], row[1], row[2])
			row[0], row[1], row[2] = rgb(h+shift, s, v)
		}
	}
}

// hsv is PIL's rgb2hsv, which computes in float here and in double there; the last bit counts.
func hsv(r, g, b byte) (h, s, v byte) {
	high, low := max(r, g, b), min(r, g, b)
	if high == low {
		return 0, 0, high
	}
	span := float32(high - low)
	saturation := span / float32(high)
	rc, gc, bc := float32(high-r)/span, float32(high-g)/span, float32(high-b)/span
	var hue float32
	switch high {
	case r:
		hue = bc - gc
	case g:
		hue = float32(2.0 + float64(rc) - float64(bc))
	default:
		hue = float32(4.0 + float64(gc) - float64(rc))
	}
	turned := float64(hue)/6.0 + 1.0
	if turned >= 1 { // fmod(turned, 1): it is below 2
		turned--
	}
	hue = float32(turned)
	return byte(float64(hue) * 255.0), byte(float64(saturation) * 255.0), high
}

// rgb is PIL's hsv2rgb.
func rgb(h, s, v byte) (r, g, b byte) {
	if s == 0 {
		return v, v, v
	}
	at := float64(float32(h)) * 6.0 / 255.0
	sector := int(at)
	f := float32(at - float64(float32(sector)))
	fs := float32(float64(float32(s)) / 255.0)
	level := func(share float64) byte {
		return byte(min(max(math.Round(float64(v)*share), 0), 255))
	}
	p := level(1.0 - float64(fs))
	q := level(1.0 - float64(float32(fs*f)))
	t := level(1.0 - float64(float64(fs)*(1.0-float64(f))))
	switch sector % 6 {
	case 0:
		return v, t, p
	case 1:
		return q, v, p
	case 2:
		return p, v, t
	case 3:
		return p, q, v
	case 4:
		return t, p, v
	}
	return v, p, q
}
