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
		const animation, exif = 1 << 1, 1 << 3
		if body[0]&animation != 0 {
			return h, fail(ErrAnimated, "WebP")
		}
		h.Width, h.Height = 1+uint24(body[4:]), 1+uint24(body[7:])
		if body[0]&exif != 0 {
			h.Orientation = webpOrientation(src)
		}
	case "VP8 ":
		if body[0]&1 != 0 || !hasPrefix(body, 3, "\x9d\x01\x2a") {
			return h, fail(ErrCorrupt, "WebP without a key frame")
		}
		h.Width = int(binary.LittleEndian.Uint16(body[6:]) & 0x3fff)
		h.Height = int(binary.LittleEndian.Uint16(body[8:]) & 0x3fff)
	case "VP8L":
		if body[0] != 0x2f {
			return h, fail(ErrCorrupt, "lossless WebP without a signature")
		}
		bits := binary.LittleEndian.Uint32(body[1:])
		h.Width, h.Height = 1+int(bits&0x3fff), 1+int(bits>>14&0x3fff)
	default:
		return h, fail(ErrCorrupt, "WebP that starts with chunk %q", src[12:16])
	}
	return h, nil
}

func uint24(b []byte) int { return int(b[0]) | int(b[1])<<8 | int(b[2])<<16 }

// webpOrientation returns the orientation from the EXIF chunk, which follows the pixels.
func webpOrientation(src []byte) int {
	for at := int64(12); at+8 <= int64(len(src)); {
		size := int64(binary.LittleEndian.Uint32(src[at+4:]))
		end := at + 8 + size
		if end > int64(len(src)) {
			break
		}
		if string(src[at:at+4]) == "EXIF" {
			body := src[at+8 : end]
			if hasPrefix(body, 0, "Exif\x00\x00") {
				body = body[6:]
			}
			return exifOrientation(body)
		}
		at = end + size&1
	}
	return 1
}
