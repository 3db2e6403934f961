package codec

import (
	"encoding/binary"
	"hash/crc32"
)

const pngSignature = "\x89PNG\r\n\x1a\n"

// Where IHDR has the bit depth, the colour type and whether the image is interlaced.
const (
	pngDepthAt     = 24
	pngColourAt    = 25
	pngInterlaceAt = 28
)

// PNG's colour types (W3C PNG, 11.2.1).
const (
	pngGray      = 0
	pngRGB       = 2
	pngPalette   = 3
	pngGrayAlpha = 4
	pngRGBA      = 6
)

// pngHeader reads IHDR, and what the other chunks say of how the image is shown, which may follow
// the pixels.
func pngHeader(src []byte, z *inflater) (Header, error) {
	h := Header{Format: PNG, Channels: 3}
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
	if src[pngColourAt] == pngGray || src[pngColourAt] == pngGrayAlpha {
		h.Channels = 1
	}
	switch depth := src[pngDepthAt]; {
	case src[pngColourAt] == pngRGB:
		h.mode = RGB
	case src[pngColourAt] == pngGray && depth > 1 && depth <= 8:
		h.mode = L
	}
	var says pngCarriers
	odd := oddPNG{colour: int(src[pngColourAt])}
	inPixels := false // some have come
	for at := pngFirst; ; {
		kind, body, next := pngChunk(src, at)
		if !isChunkType(kind) || next > len(src) || string(kind) == "IEND" {
			h.Orientation, h.Odd = says.orientation(), odd.odd
			return h, nil
		}
		odd.add(string(kind), body, &h, inPixels, z)
		switch string(kind) {
		case "IHDR": // PIL uses the last one
			if !inPixels {
				return h, fail(ErrCorrupt, "PNG with a second header")
			}
		case "IDAT":
			inPixels = true
		case "acTL":
			h.Animated = h.Animated || !inPixels
		case "tRNS":
			h.Transparent = true
		default:
			says.add(string(kind), body)
		}
		at = next
	}
}

// pngFirst is the offset of the first chunk after IHDR.
const pngFirst = len(pngSignature) + 12 + 13

// pngChunk returns the type and the contents, which may be truncated, of the PNG chunk at offset
// at, and the offset of the next one. It returns nil at the end of the file.
func pngChunk(src []byte, at int) (kind, body []byte, next int) {
	if at+8 > len(src) {
		return nil, nil, at
	}
	next = at + 12 + int(binary.BigEndian.Uint32(src[at:]))
	return src[at+4 : at+8], src[at+8 : min(next-4, len(src))], next
}

// isChunkType reports whether PIL takes bytes, maybe nil, for a chunk's type. It stops reading at
// others.
func isChunkType(kind []byte) bool {
	for _, c := range kind {
		if (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && c != '_' {
			return false
		}
	}
	return kind != nil
}

// pngColours returns the number of colours in a PNG's palette.
func pngColours(src []byte) (colours int) {
	for at := len(pngSignature); ; {
		kind, body, next := pngChunk(src, at)
		switch string(kind) {
		case "", "IDAT", "IEND":
			return colours
		case "PLTE":
			colours = len(body) / 3
		}
		at = next
	}
}

// pngLayout holds what decoding needs to know of a PNG in addition to its size.
type pngLayout struct {
	depth, colour int
	palette       []byte // red, green and blue of each index
	pixels        int    // offset of the first chunk of pixels
}

// layoutOf reads a PNG up to its pixels. ok is false if the PNG is interlaced, of an undefined
// colour type, or corrupt up to there: PIL verifies the checksums of all chunks before the pixels,
// as Go's decoder does.
func layoutOf(src []byte) (l pngLayout, ok bool) {
	const ihdr = len(pngSignature) + 8
	l.depth, l.colour = int(src[ihdr+8]), int(src[ihdr+9])
	switch {
	case l.colour == pngGray &&
		(l.depth == 1 || l.depth == 2 || l.depth == 4 || l.depth == 8 || l.depth == 16):
	case l.colour == pngPalette && (l.depth == 1 || l.depth == 2 || l.depth == 4 || l.depth == 8):
	case (l.colour == pngRGB || l.colour == pngGrayAlpha || l.colour == pngRGBA) &&
		(l.depth == 8 || l.depth == 16):
	default:
		return l, false
	}
	// compression deflate, filter method 0, not interlaced
	if string(src[ihdr+10:ihdr+13]) != "\x00\x00\x00" {
		return l, false
	}
	for at := len(pngSignature); ; {
		kind, body, next := pngChunk(src, at)
		if string(kind) == "IDAT" {
			l.pixels = at
			return l, l.colour != pngPalette || len(l.palette) > 0
		}
		if kind == nil || string(kind) == "IEND" || next > len(src) ||
			crc32.ChecksumIEEE(src[at+4:next-4]) != binary.BigEndian.Uint32(src[next-4:]) {
			return l, false
		}
		switch {
		case string(kind) == "PLTE" && l.colour == pngPalette:
			if l.palette = body; len(body)%3 != 0 || len(body) > 256*3 {
				return l, false
			}
		case string(kind) == "tRNS" && len(body) < 2*pngSamples[l.colour] && l.colour <= pngRGB:
			return l, false
		}
		at = next
	}
}

// pngSamples is the number of samples per pixel, by colour type.
var pngSamples = [...]int{pngGray: 1, pngRGB: 3, pngPalette: 1, pngGrayAlpha: 2, pngRGBA: 4}

// pngHolds returns an error if a PNG is too small to contain its pixels, so that no memory is
// allocated for them.
func pngHolds(src []byte, h *Header) error {
	if most := int64(len(src)) * deflateRatio; pngBytes(src, h) > most {
		return fail(ErrTruncated, "PNG of %d x %d pixels in %d bytes", h.Width, h.Height, len(src))
	}
	return nil
}

// deflateRatio is the largest compression ratio of deflate: 258 bytes in two codes of one bit each.
const deflateRatio = 1032

// pngBytes returns a lower bound of the pixels' size in bytes before compression.
func pngBytes(src []byte, h *Header) int64 {
	if depth, kind := int64(src[pngDepthAt]), int(src[pngColourAt]); kind < len(pngSamples) {
		return int64(h.Height) * (int64(h.Width) * int64(pngSamples[kind]) * depth / 8)
	}
	return 0
}
