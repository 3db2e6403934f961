package codec

import (
	"encoding/binary"
	"image"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// luma is PIL's RGB to L: ITU-R 601-2 with 16 fraction bits (Pillow's Convert.c, L24).
func luma(r, g, b byte) byte {
	return byte((uint32(r)*19595 + uint32(g)*38470 + uint32(b)*7471 + 0x8000) >> 16)
}

// toGray converts m to one channel, in place.
func toGray(m *pixels.Image) {
	if m.Channels == 1 {
		return
	}
	to := 0
	for y := range m.Height {
		row := m.Row(y)
		for x := 0; x < len(row); x += 3 {
			m.Pix[to] = luma(row[x], row[x+1], row[x+2])
			to++
		}
	}
	*m = pixels.Image{
		Pix:      m.Pix[:to],
		Width:    m.Width,
		Height:   m.Height,
		Channels: 1,
		Stride:   m.Width,
	}
}

// cmykToRGB converts four channels, inverted as Adobe writes them, to RGB. Like PIL it assumes that
// every CMYK JPEG is inverted (mode CMYK;I), and computes PIL's cmyk2rgb.
func cmykToRGB(dst, src []byte) {
	for i := range len(src) / 4 {
		c := 255 - src[i*4]
		m := 255 - src[i*4+1]
		y := 255 - src[i*4+2]
		k := src[i*4+3]
		dst[i*3] = inked(c, k)
		dst[i*3+1] = inked(m, k)
		dst[i*3+2] = inked(y, k)
	}
}

// inked returns the brightness of one colour of ink over the light that black leaves: light -
// light*ink/255, rounded as Pillow's MULDIV255.
func inked(ink, light byte) byte {
	t := uint32(ink)*uint32(light) + 128
	return byte(max(int32(light)-int32((t>>8+t)>>8), 0))
}

// fromImage converts an image of Go's decoders to dst as PIL's convert("RGB") or convert("L") do:
// alpha is dropped, not composited, and palettes are looked up.
func fromImage(dst *pixels.Image, m image.Image, gray bool) error {
	b := m.Bounds()
	w, h := b.Dx(), b.Dy()
	channels := 3
	switch m.(type) {
	case *image.Gray, *image.Gray16:
		if gray {
			channels = 1
		}
	}
	dst.Reset(w, h, channels)
	for y := range h {
		row := dst.Row(y)
		switch m := m.(type) {
		case *image.Gray:
			expandGray(row, m.Pix[y*m.Stride:][:w], channels)
		case *image.Gray16:
			for x := range w {
				// PIL opens these in mode I and clips them when it converts them to 8 bits.
				v := m.Pix[y*m.Stride+2*x+1]
				if m.Pix[y*m.Stride+2*x] != 0 {
					v = 255
				}
				for c := range channels {
					row[x*channels+c] = v
				}
			}
		case *image.RGBA:
			dropAlpha(row, m.Pix[y*m.Stride:][:4*w], 4, 1)
		case *image.NRGBA:
			dropAlpha(row, m.Pix[y*m.Stride:][:4*w], 4, 1)
		case *image.RGBA64:
			dropAlpha(row, m.Pix[y*m.Stride:][:8*w], 8, 2)
		case *image.NRGBA64:
			dropAlpha(row, m.Pix[y*m.Stride:][:8*w], 8, 2)
		case *image.Paletted:
			for x, i := range m.Pix[y*m.Stride:][:w] {
				row[x*3], row[x*3+1], row[x*3+2] = paletteColor(m.Palette[i])
			}
		case *image.CMYK:
			// image/jpeg has undone the inversion if there is an Adobe marker.
			for x := range w {
				p := m.Pix[y*m.Stride+4*x:]
				row[x*3] = inked(p[0], 255-p[3])
				row[x*3+1] = inked(p[1], 255-p[3])
				row[x*3+2] = inked(p[2], 255-p[3])
			}
		case *image.YCbCr:
			for x := range w {
				c := m.YCbCrAt(b.Min.X+x, b.Min.Y+y)
				row[x*3], row[x*3+1], row[x*3+2] = yccToRGB(c.Y, c.Cb, c.Cr)
			}
		default:
			return fail(ErrUnsupported, "%T", m)
		}
	}
	if gray {
		toGray(dst)
	}
	return nil
}

// expandGray writes gray levels, of which there is at least one, to pixels of so many channels.
func expandGray(row, gray []byte, channels int) {
	if channels == 1 {
		copy(row, gray)
		return
	}
	last := len(gray) - 1 // four bytes are written for each pixel but that
	for x, v := range gray[:last] {
		binary.LittleEndian.PutUint32(row[3*x:3*x+4], uint32(v)*0x01010101)
	}
	for c := range 3 {
		row[3*last+c] = gray[last]
	}
}

// dropAlpha copies the first byte of each of the first three samples of every pixel. A pixel has
// size bytes, a sample has sample bytes.
func dropAlpha(row, from []byte, size, sample int) {
	for x, at := 0, 0; at < len(from); x, at = x+3, at+size {
		row[x] = from[at]
		row[x+1] = from[at+sample]
		row[x+2] = from[at+2*sample]
	}
}

// yccToRGB is JFIF's conversion with libjpeg's rounding (jdcolor.c).
func yccToRGB(y, cb, cr byte) (r, g, b byte) {
	const half = 1 << 15
	u, v := int32(cb)-128, int32(cr)-128
	clip := func(x int32) byte { return byte(min(max(x, 0), 255)) }
	return clip(int32(y) + (91881*v+half)>>16),
		clip(int32(y) + (-22554*u-46802*v+half)>>16),
		clip(int32(y) + (116130*u+half)>>16)
}
