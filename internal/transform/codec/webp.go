package codec

import "encoding/binary"

// webpHeader reads the first chunk (Google's WebP container specification): VP8X, with the canvas
// size and the flags, or the header of the pixels.
func webpHeader(src []byte) (Header, error) {
	h := Header{Format: WebP, Orientation: 1, Channels: 3}
	if len(src) < 30 {
		return h, fail(ErrTruncated, "WebP of %d bytes", len(src))
	}
	body := src[20:]
	switch string(src[12:16]) {
	case "VP8X":
		if body[0]&webpAnimation != 0 {
			return h, fail(ErrAnimated, "WebP; %s", byPillow)
		}
		h.Width, h.Height = 1+uint24(body[4:]), 1+uint24(body[7:])
		h.mode = webpMode(src, body[0])
		h.Orientation = webpOrientation(src, body[0])
	case "VP8 ":
		if body[0]&1 != 0 || !hasPrefix(body, 3, "\x9d\x01\x2a") {
			return h, fail(ErrCorrupt, "WebP without a key frame")
		}
		h.Width = int(binary.LittleEndian.Uint16(body[6:]) & 0x3fff)
		h.Height = int(binary.LittleEndian.Uint16(body[8:]) & 0x3fff)
		h.mode = RGB
	case "VP8L":
		if body[0] != 0x2f {
			return h, fail(ErrCorrupt, "lossless WebP without a signature")
		}
		bits := binary.LittleEndian.Uint32(body[1:])
		h.Width, h.Height = 1+int(bits&0x3fff), 1+int(bits>>14&0x3fff)
		if bits&vp8lAlpha == 0 {
			h.mode = RGB
		}
	default:
		return h, fail(ErrCorrupt, "WebP that starts with chunk %q", src[12:16])
	}
	return h, nil
}

// webpMode returns the mode of a file with VP8X and its flags: RGB if nothing in it may be alpha.
func webpMode(src []byte, flags byte) Mode {
	if flags&webpAlpha != 0 {
		return OtherMode
	}
	for at := webpFirst; ; {
		kind, _, next := webpChunk(src, at)
		switch string(kind) {
		case "VP8 ":
			return RGB
		case "", "ALPH", "VP8L":
			return OtherMode
		}
		at = next
	}
}

// vp8lAlpha is set in the header of lossless pixels which may have alpha.
const vp8lAlpha = 1 << 28

func uint24(b []byte) int { return int(b[0]) | int(b[1])<<8 | int(b[2])<<16 }

// webpOrientation returns the orientation from the first EXIF and the first XMP chunk, as far as
// flags announce them. They follow the pixels.
func webpOrientation(src []byte, flags byte) int {
	var says carriers
	for at := webpFirst; ; {
		kind, body, next := webpChunk(src, at)
		switch string(kind) {
		case "":
			return says.orientation()
		case "EXIF":
			if flags&webpExif != 0 && says.exif == nil {
				says.exif = body
			}
		case "XMP ":
			if flags&webpXMP != 0 && says.xmp == nil {
				says.xmp = body
			}
		}
		at = next
	}
}

// webpFirst is the offset of the first chunk.
const webpFirst = 12

// Flags of VP8X.
const (
	webpAnimation = 1 << 1
	webpXMP       = 1 << 2
	webpExif      = 1 << 3
	webpAlpha     = 1 << 4
)

// webpChunk returns the type and the contents of the WebP chunk at offset at, and the offset of the
// next one. It returns nil at the end of the file, by its length or by what RIFF says.
func webpChunk(src []byte, at int) (kind, body []byte, next int) {
	end := min(int64(len(src)), 8+int64(binary.LittleEndian.Uint32(src[4:])))
	if int64(at)+8 > end {
		return nil, nil, at
	}
	size := int64(binary.LittleEndian.Uint32(src[at+4:]))
	if int64(at)+8+size > end {
		return nil, nil, at
	}
	return src[at : at+4], src[at+8 : at+8+int(size)], at + 8 + int(size+size&1)
}
