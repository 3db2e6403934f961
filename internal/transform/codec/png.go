package codec

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
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
func (d *Decoder) decodePNG(dst *pixels.Image, src []byte, h *Header, gray bool) error {
	if most := int64(len(src)) * deflateRatio; pngBytes(src, h) > most {
		return fail(ErrTruncated, "PNG of %d x %d pixels in %d bytes", h.Width, h.Height, len(src))
	}
	m, err := png.Decode(bytes.NewReader(src))
	if err != nil {
		whole, cut := mended(src)
		if whole != nil {
			if again, still := png.Decode(bytes.NewReader(whole)); still == nil {
				return fromImage(dst, again, gray)
			}
		}
		if cut {
			return fail(ErrTruncated, "%v", err)
		}
		return fail(ErrCorrupt, "%v", err)
	}
	return fromImage(dst, m, gray)
}

// deflateRatio is the most that deflate compresses: 258 bytes in two codes of one bit each.
const deflateRatio = 1032

// pngBytes returns how many bytes the pixels take, at least, before compression. Who knows that they can not be there
// takes no memory for them.
func pngBytes(src []byte, h *Header) int64 {
	samples := [...]int64{pngGray: 1, pngRGB: 3, pngPalette: 1, pngGrayAlpha: 2, pngRGBA: 4}
	if depth, kind := int64(src[24]), int(src[25]); kind < len(samples) {
		return int64(h.Height) * (int64(h.Width) * samples[kind] * depth / 8)
	}
	return 0
}

// mended looks whether a PNG is cut, and ends one that is cut within its last chunk of pixels, or behind: PIL takes it
// for whole if all its pixels are there (and even if their last four bytes, zlib's checksum, are not; we do not).
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
