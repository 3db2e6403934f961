package pixels

import "image"

// mix computes one sample of PIL's Image.blend, in float32 as PIL does: factor 0 gives a, and 1
// gives b.
func mix(a, b byte, factor float32) byte {
	v := float32(a) + float32(factor*float32(int(b)-int(a)))
	switch {
	case v >= 255:
		return 255
	case v > 0:
		return byte(v)
	}
	return 0
}

// luma returns PIL's L of a colour: ITU-R 601-2, in 16 bits.
func luma(r, g, b byte) byte {
	return byte((uint32(r)*19595 + uint32(g)*38470 + uint32(b)*7471 + 0x8000) >> 16)
}

// Color mixes an image with its gray version, as PIL's ImageEnhance.Color. It leaves gray images as
// they are.
func Color(m *Image, factor float32) {
	if m.Channels == 3 {
		m.saturate(best, factor)
	}
}

// Hue shifts an image's hue by shift 256ths of the circle in PIL's HSV, as torchvision's
// adjust_hue. It leaves gray images as they are.
func Hue(m *Image, shift byte) {
	if m.Channels == 3 {
		m.turn(best, shift)
	}
}

// Gray sets dst to the gray version of src, in 1 channel as PIL's convert("L") and
// ImageOps.grayscale, or in 3 equal ones as torchvision's to_grayscale. dst may be src if the
// number of channels stays the same.
func Gray(dst, src *Image, channels int) {
	if dst != src {
		dst.Reset(src.Width, src.Height, channels)
	}
	src.gray(best, dst)
}

// Sharpness sets dst to a mix of src with its smooth version, as PIL's ImageEnhance.Sharpness. dst
// must not share pixels with src.
func (e *Editor) Sharpness(dst, src *Image, factor float32) {
	if src.Width < 3 || src.Height < 3 {
		src.CopyTo(dst) // which PIL's kernel does not fit into
		return
	}
	dst.Reset(src.Width, src.Height, src.Channels)
	e.sharpen(dst, src, factor)
}

// Erase sets the part of m inside r to one colour, of a level per channel.
func Erase(m *Image, r image.Rectangle, colour []byte) {
	part := m.Sub(r)
	for y := range part.Height {
		row := part.Row(y)
		for x := range part.Width {
			copy(row[x*m.Channels:], colour[:m.Channels])
		}
	}
}

// Paste copies an image of as many channels onto m, with its first pixel at the given point. Pixels
// outside m are omitted.
func Paste(m, from *Image, at image.Point) {
	to := m.Sub(from.Bounds().Add(at))
	if to.Width == 0 {
		return
	}
	part := from.Sub(m.Bounds().Sub(at))
	for y := range to.Height {
		copy(to.Row(y), part.Row(y))
	}
}
