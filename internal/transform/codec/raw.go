package codec

import (
	"image"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// Depth is how many bits the numbers of an image have that DecodeRaw decodes.
type Depth uint8

// Depths: PIL's modes "1"; "L" and "P"; "I;16" or "I".
const (
	OneBit    Depth = 1
	EightBits Depth = 8
	TwoBytes  Depth = 16
)

// DecodeRaw decodes the numbers of an image of one channel, as numpy.asarray(PIL.Image.open(f))
// has them: gray levels, the indices of a palette, 16 bits as they are. dst has a channel, or two,
// the lower byte first, if the depth is TwoBytes. region is as Want's, and origin as Decode's. A
// JPEG of one channel has gray levels. Images with colours are an error.
func (d *Decoder) DecodeRaw(dst *pixels.Image, src []byte, region image.Rectangle) (
	origin image.Point, depth Depth, err error,
) {
	h, err := d.Header(src)
	if err != nil {
		return origin, 0, err
	}
	depth, err = rawDepth(src, &h)
	if err != nil {
		return origin, 0, err
	}
	origin, err = d.Decode(dst, src, Want{Gray: true, raw: true, Region: region})
	return origin, depth, err
}

// rawDepth returns the depth of an image, or an error if it has colours.
func rawDepth(src []byte, h *Header) (Depth, error) {
	colour := 0
	if h.Format == PNG {
		colour = int(src[pngColourAt])
	}
	switch {
	case h.Format == JPEG && h.Channels == 1:
		return EightBits, nil
	case h.Format == WebP:
		return 0, fail(ErrUnsupported, "a WebP has colours, and a mask has numbers of classes: "+
			"save masks as PNGs with a palette or in gray")
	case h.Format == JPEG || colour != pngGray && colour != pngPalette:
		return 0, fail(ErrUnsupported, "a %v with colours, and a mask has numbers of classes: save "+
			"masks as PNGs with a palette or in gray", h.Format)
	case src[pngDepthAt] == 16:
		return TwoBytes, nil
	case src[pngDepthAt] == 1 && colour == pngGray:
		return OneBit, nil
	}
	return EightBits, nil
}

// Numbers reports whether DecodeRaw gives other numbers of an image with that header than Decode
// does: indices of a palette, 16 bits, or one.
func Numbers(src []byte, h *Header) bool {
	depth, err := rawDepth(src, h)
	return err == nil && h.Format == PNG && (depth != EightBits || src[pngColourAt] == pngPalette)
}

// unscale makes numbers of the levels of a PNG of less than 8 bits: of a palette indices, of one
// bit 0 and 1. PIL has the levels of 2 and 4 bits as they are shown, from 0 to 255.
func unscale(m *pixels.Image, src []byte) {
	depth := src[pngDepthAt]
	if depth >= 8 || src[pngColourAt] != pngPalette && depth != 1 {
		return
	}
	most := 255 / (byte(1)<<depth - 1)
	for y := range m.Height {
		row := m.Row(y)
		for x := range row {
			row[x] /= most
		}
	}
}

// fromRaw takes the numbers of what image/png decoded.
func fromRaw(dst *pixels.Image, from image.Image, src []byte) error {
	if m, ok := from.(*image.NRGBA64); ok {
		from = withoutAlpha(m)
	}
	size := from.Bounds().Size()
	channels := 1
	if _, wide := from.(*image.Gray16); wide {
		channels = 2
	}
	dst.Reset(size.X, size.Y, channels)
	for y := range size.Y {
		row := dst.Row(y)
		switch m := from.(type) {
		case *image.Paletted:
			copy(row, m.Pix[y*m.Stride:])
		case *image.Gray:
			copy(row, m.Pix[y*m.Stride:])
		case *image.Gray16:
			for x := 0; x < len(row); x += 2 {
				row[x], row[x+1] = m.Pix[y*m.Stride+x+1], m.Pix[y*m.Stride+x]
			}
		case *image.NRGBA: // with a transparent level
			for x := range row {
				row[x] = m.Pix[y*m.Stride+4*x]
			}
		default:
			return fail(ErrUnsupported, "a PNG that is decoded as %T", from)
		}
	}
	if src[pngColourAt] == pngGray {
		unscale(dst, src)
	}
	return nil
}
