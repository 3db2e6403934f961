package transform

import (
	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// Grayscale converts an image to gray, as PIL's convert("L").
//
//	num_output_channels  1, or 3 that are equal
var grayscale = kind{
	name:   "Grayscale",
	params: []param{{"num_output_channels", "1"}},
	build: func(a *arguments) step {
		s := gray{channels: a.whole("num_output_channels", 1, 3)}
		if s.channels == 2 {
			a.fault("num_output_channels", "it must be 1 or 3")
		}
		return s
	},
}

type gray struct{ channels int }

func (s gray) follow(k *known) error {
	k.channels = s.channels
	return k.image()
}

func (s gray) apply(v *view, _ *draws) error {
	src, err := v.pixels()
	if err != nil || src.Channels == 1 && s.channels == 1 {
		return err
	}
	v.bare, v.grayed = v.bare || s.channels == 3, true
	if err := v.w.spare(1-v.buffer, src.Width, src.Height, s.channels); err != nil {
		return err
	}
	dst := v.spare()
	dst.Reset(src.Width, src.Height, s.channels)
	for y := range src.Height {
		from, to := src.Row(y), dst.Row(y)
		for x := range src.Width {
			l := from[x*src.Channels:][0]
			if src.Channels == 3 {
				l = luma(from[3*x], from[3*x+1], from[3*x+2])
			}
			for c := range s.channels {
				to[x*s.channels+c] = l
			}
		}
	}
	v.become()
	return nil
}

// luma returns PIL's L of a colour: ITU-R 601-2, in 16 bits.
func luma(r, g, b byte) byte {
	return byte((uint32(r)*19595 + uint32(g)*38470 + uint32(b)*7471 + 0x8000) >> 16)
}

// lumas returns the sum of the L of an image's pixels.
func lumas(m *pixels.Image) int {
	sum := 0
	for y := range m.Height {
		row := m.Row(y)
		if m.Channels == 1 {
			for _, l := range row {
				sum += int(l)
			}
			continue
		}
		for len(row) >= 3 {
			sum += int(luma(row[0], row[1], row[2]))
			row = row[3:]
		}
	}
	return sum
}
