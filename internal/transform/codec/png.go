package codec

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"image/color"
	"image/png"
	"io"

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
func (d *Decoder) decodePNG(dst *pixels.Image, src []byte, h *Header, gray bool) error {
	if most := int64(len(src)) * deflateRatio; pngBytes(src, h) > most {
		return fail(ErrTruncated, "PNG of %d x %d pixels in %d bytes", h.Width, h.Height, len(src))
	}
	m, err := png.Decode(bytes.NewReader(src))
	if errors.Is(err, io.ErrUnexpectedEOF) {
		if whole := mended(src); whole != nil {
			if again, ok := png.Decode(bytes.NewReader(whole)); ok == nil {
				m, err = again, nil
			}
		}
	}
	if err != nil {
		return fromGo(err)
	}
	return fromImage(dst, m, gray)
}

// deflateRatio is the most that deflate compresses: 258 bytes in two codes of one bit each.
const deflateRatio = 1032

// pngBytes returns how many bytes the pixels take, at least, before compression. Who knows that they can not be there takes
// no memory for them.
func pngBytes(src []byte, h *Header) int64 {
	samples := [...]int64{pngGray: 1, pngRGB: 3, pngPalette: 1, pngGrayAlpha: 2, pngRGBA: 4}
	if depth, kind := int64(src[24]), int(src[25]); kind < len(samples) {
		return int64(h.Height) * (int64(h.Width) * samples[kind] * depth / 8)
	}
	return 0
}

// mended ends a PNG that is cut within its last chunk of pixels, or behind: PIL takes one for whole if all its pixels are
// there (and even if their last four bytes, zlib's checksum, are not; we do not). It returns nil where the cut is
// elsewhere.
func mended(src []byte) []byte {
	last := -1
	for at := len(pngSignature); at+8 <= len(src) && !hasPrefix(src, at+4, "IEND"); {
		if last = -1; hasPrefix(src, at+4, "IDAT") {
			last = at
		}
		at += 12 + int(binary.BigEndian.Uint32(src[at:]))
	}
	if last < 0 {
		return nil
	}
	size := min(int(binary.BigEndian.Uint32(src[last:])), len(src)-last-8)
	whole := binary.BigEndian.AppendUint32(bytes.Clone(src[:last]), uint32(size))
	whole = append(whole, src[last+4:last+8+size]...)
	whole = binary.BigEndian.AppendUint32(whole, crc32.ChecksumIEEE(whole[last+4:]))
	return append(whole, "\x00\x00\x00\x00IEND\xaeB`\x82"...)
}

func paletteColor(c color.Color) (r, g, b byte) {
	n := color.NRGBAModel.Convert(c).(color.NRGBA)
	return n.R, n.G, n.B
}
