//go:build cgo

package pixels

import (
	"bytes"
	"image"
	"math/rand/v2"
	"testing"
)

// FuzzResize: C at every level gives the bytes of Go.
func FuzzResize(f *testing.F) {
	f.Add(uint64(1), uint16(500), uint16(375), uint16(224), uint16(224), uint8(Bilinear), true,
		uint32(0))
	f.Add(uint64(2), uint16(3), uint16(900), uint16(70), uint16(1), uint8(Lanczos), true,
		uint32(77))
	f.Add(uint64(3), uint16(1), uint16(1), uint16(30), uint16(40), uint8(Bicubic), false, uint32(5))
	f.Add(uint64(4), uint16(64), uint16(1), uint16(64), uint16(9), uint8(Box), true, uint32(1<<31))
	f.Fuzz(func(t *testing.T, seed uint64, w, h, width, height uint16, filter uint8, colour bool,
		cut uint32,
	) {
		w = w%1024 + 1
		h = h%1024 + 1
		width = width%600 + 1
		height = height%600 + 1
		channels := 1
		if colour {
			channels = 3
		}
		r := rand.New(rand.NewPCG(seed, 0))
		// A view into a larger image half the time; vectors must not read past its end either way.
		var whole Image
		pad := int(cut & 1)
		whole.Reset(int(w)+pad*5, int(h)+pad, channels)
		for i := range whole.Pix {
			whole.Pix[i] = byte(r.Uint32())
			if seed&1 == 0 {
				whole.Pix[i] = -(whole.Pix[i] & 1) // extremes
			}
		}
		src := whole.Sub(image.Rect(pad*3, pad, pad*3+int(w), pad+int(h)))
		x0, y0 := int(cut>>1)%int(width), int(cut>>9)%int(height)
		window := image.Rect(x0, y0, x0+1+int(cut>>17)%(int(width)-x0),
			y0+1+int(cut>>25)%(int(height)-y0))
		need := Support(int(w), int(h), int(width), int(height), window, Filter(filter%6))
		part := src.Sub(need)
		part.Pix = bytes.Clone(part.Pix)[:len(part.Pix):len(part.Pix)]

		var reference Image
		for k := inGo; k <= plain+kernel(level); k++ {
			var dst Image
			z := Resizer{kernel: k, Order: Order(cut >> 31)}
			z.ResizePart(&dst, &part, need.Min, int(w), int(h), int(width), int(height), window,
				Filter(filter%6))
			if k == inGo {
				reference = dst
			} else if !bytes.Equal(dst.Pix, reference.Pix) {
				t.Fatalf("%dx%d to %dx%d, window %v, %v: kernel %d: %d samples differ, by up to %d",
					w, h, width, height, window,
					Filter(filter%6), k, count(dst.Pix, reference.Pix),
					most(dst.Pix, reference.Pix))
			}
		}
	})
}

// FuzzPack: C at every level gives the bytes of Go.
func FuzzPack(f *testing.F) {
	f.Add(uint64(1), uint16(224), uint8(3), uint8(Float32), uint8(0), uint8(1), true, float32(.485),
		float32(.229))
	f.Add(uint64(2), uint16(1025), uint8(1), uint8(Float16), uint8(1), uint8(3), false, float32(0),
		float32(1))
	f.Add(uint64(3), uint16(513), uint8(2), uint8(BFloat16), uint8(1), uint8(1), true,
		float32(-1e30), float32(1e-30))
	f.Fuzz(func(t *testing.T, seed uint64, w uint16, h, typ, layout, flip uint8, unit bool,
		mean, std float32,
	) {
		scale := Levels
		if unit {
			scale = 1 + Scale(typ/4)%2
		}
		target := Target{
			Type:   Type(typ % 4),
			Layout: Layout(layout % 2),
			Scale:  scale,
			Mean:   []float32{mean, .4, .1},
			Std:    []float32{std, .2, 3},
		}
		if target.Type == Uint8 {
			target = Target{Layout: target.Layout}
		}
		p, err := NewPacker(target)
		if err != nil {
			return
		}
		for _, channels := range []int{1, 3} {
			var src Image
			src.Reset(int(w)%2000+1, int(h)%9+1, channels)
			r := rand.New(rand.NewPCG(seed, 0))
			for i := range src.Pix {
				src.Pix[i] = byte(r.Uint32())
			}
			want := make([]byte, p.Size(src.Width, src.Height, channels))
			got := make([]byte, len(want))
			p.packGo(want, &src, Flip(flip%4))
			for l := range level + 1 {
				clear(got)
				p.packC(l, got, &src, Flip(flip%4))
				if !bytes.Equal(got, want) {
					t.Fatalf("%+v, %dx%dx%d, flip %d, level %d: %d bytes differ", target, src.Width,
						src.Height, channels, flip%4, l, count(got, want))
				}
			}
		}
	})
}

// TestArithmetic: what everyone uses is computed, not looked up.
func TestArithmetic(t *testing.T) {
	for _, typ := range []Type{Float16, BFloat16, Float32} {
		for _, target := range []Target{
			{Type: typ, Scale: Quotient},
			{
				Type:  typ,
				Scale: Quotient,
				Mean:  []float32{.485, .456, .406},
				Std:   []float32{.229, .224, .225},
			},
			{Type: typ, Scale: Quotient, Mean: []float32{.5}, Std: []float32{.5}},
			{
				Type: typ,
				Mean: []float32{123.675, 116.28, 103.53},
				Std:  []float32{58.395, 57.12, 57.375},
			},
		} {
			if p, err := NewPacker(target); err != nil || p.kernels.c.arithmetic == 0 {
				t.Errorf("%+v: looked up (%v)", target, err)
			}
		}
	}
}
