package codec

import (
	"bytes"
	"encoding/binary"
	"image/color"
	"image/png"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

const pngSignature = "\x89PNG\r\n\x1a\n"

// PNG's colour types (W3C PNG, 11.2.1).
const (
	pngGray      = 0
	pngRGB       = 2
	pngPalette   = 3
	pngGrayAlpha = 4
	pngRGBA      = 6
)

// pngHeader reads IHDR, and eXIf where it comes before the pixels.
func pngHeader(src []byte) (Header, error) {
	h := Header{Format: PNG, Orientation: 1, Channels: 3}
	if len(src) < 33 {
		return h, fail(ErrTruncated, "PNG of %d bytes", len(src))
	}
	if binary.BigEndian.Uint32(src[8:]) != 13 || !hasPrefix(src, 12, "IHDR") {
		return h, fail(ErrCorrupt, "PNG without a header")
	}
	w, ht := binary.BigEndian.Uint32(src[16:]), binary.BigEndian.Uint32(src[20:])
	if w > 1<<31-1 || ht > 1<<31-1 {
		return h, fail(ErrCorrupt, "PNG of %d x %d pixels", w, ht)
	}
	h.Width, h.Height = int(w), int(ht)
	if src[25] == pngGray || src[25] == pngGrayAlpha {
		h.Channels = 1
	}
	for at := 33; at+8 <= len(src); {
		size := int64(binary.BigEndian.Uint32(src[at:]))
		end := int64(at) + 12 + size
		switch string(src[at+4 : at+8]) {
		case "eXIf":
			if end <= int64(len(src)) {
				h.Orientation = exifOrientation(src[at+8 : at+8+int(size)])
			}
		case "IDAT", "IEND":
			return h, nil
		}
		if end > int64(len(src)) {
			break
		}
		at = int(end)
	}
	return h, nil
}

// decodePNG decodes the whole image. An animated PNG gives its default image, as in PIL.
func (d *Decoder) decodePNG(dst *pixels.Image, src []byte, _ *Header, gray bool) error {
	m, err := png.Decode(bytes.NewReader(src))
	if err != nil {
		return fromGo(err)
	}
	return fromImage(dst, m, gray)
}

func paletteColor(c color.Color) (r, g, b byte) {
	n := color.NRGBAModel.Convert(c).(color.NRGBA)
	return n.R, n.G, n.B
}
