package codec

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"image"
	"image/color"
	"image/png"
	"runtime"
	"slices"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// decodePNGGo decodes the whole image with image/png: all PNGs in builds without cgo, and those
// that png.c does not support. An animated PNG is decoded to its default image, as in PIL.
func decodePNGGo(dst *pixels.Image, src []byte, h *Header, want Want) error {
	return guarded(h, dst, func() error {
		m, err := png.Decode(bytes.NewReader(src))
		if err == nil {
			return fromPNG(dst, m, src, want)
		}
		if int64(h.Width)*int64(h.Height) > MostKept {
			m = nil
			runtime.GC() // the garbage so far is as large as what follows
		}
		whole, cut := mended(src)
		if whole != nil {
			if m, still := png.Decode(bytes.NewReader(whole)); still == nil {
				return fromPNG(dst, m, src, want)
			}
		}
		if cut {
			return fail(ErrTruncated, "%v", err)
		}
		return fail(ErrCorrupt, "%v", err)
	})
}

// fromPNG is like fromImage, but refuses pixels without a colour in the palette: PIL shows them in
// gray up to version 12, and in black since then. image/png shows black.
func fromPNG(dst *pixels.Image, m image.Image, src []byte, want Want) error {
	if want.raw {
		return fromRaw(dst, m, src)
	}
	if p, ok := m.(*image.Paletted); ok {
		if colours := pngColours(src); int(slices.Max(p.Pix)) >= colours {
			return fail(ErrUnsupported,
				"a PNG has pixels beyond the %d colours of its palette, which versions of PIL "+
					"show differently; %s", colours, byPillow)
		}
	}
	if deep, ok := m.(*image.NRGBA64); ok && src[pngColourAt] == pngGray {
		m = withoutAlpha(deep)
	}
	return fromImage(dst, m, want.Gray)
}

// withoutAlpha returns the gray image that image/png gave an alpha channel because of a tRNS chunk,
// in the same memory. PIL opens it in mode I, as without the chunk.
func withoutAlpha(m *image.NRGBA64) *image.Gray16 {
	w, h := m.Rect.Dx(), m.Rect.Dy()
	pix := m.Pix[:0]
	for y := range h {
		row := m.Pix[y*m.Stride:][:8*w]
		for x := 0; x < len(row); x += 8 {
			pix = append(pix, row[x], row[x+1])
		}
	}
	return &image.Gray16{Pix: pix, Stride: 2 * w, Rect: image.Rect(0, 0, w, h)}
}

// mended reports whether a PNG is truncated, and completes one that is truncated within or after
// its last chunk of pixels: PIL accepts it if all its pixels are present.
func mended(src []byte) (whole []byte, cut bool) {
	last := -1
	for at := len(pngSignature); at+8 <= len(src); {
		if hasPrefix(src, at+4, "IEND") {
			if at+12 <= len(src) {
				return nil, false
			}
			break
		}
		if last = -1; hasPrefix(src, at+4, "IDAT") {
			last = at
		}
		at += 12 + int(binary.BigEndian.Uint32(src[at:]))
	}
	if last < 0 {
		return nil, true
	}
	size := min(int(binary.BigEndian.Uint32(src[last:])), len(src)-last-8)
	whole = binary.BigEndian.AppendUint32(bytes.Clone(src[:last]), uint32(size))
	whole = append(whole, src[last+4:last+8+size]...)
	whole = binary.BigEndian.AppendUint32(whole, crc32.ChecksumIEEE(whole[last+4:]))
	return append(whole, "\x00\x00\x00\x00IEND\xaeB`\x82"...), true
}

func paletteColor(c color.Color) (r, g, b byte) {
	n := color.NRGBAModel.Convert(c).(color.NRGBA)
	return n.R, n.G, n.B
}
