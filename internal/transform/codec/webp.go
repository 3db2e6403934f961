package codec

import (
	"bytes"
	"encoding/binary"
	"image"

	"golang.org/x/image/webp"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// webpHeader reads the first chunk (Google's WebP container specification): VP8X where there is one, with the canvas
// and what else there is, or the pixels' own header.
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

// webpOrientation looks for the EXIF chunk, which comes after the pixels.
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

// decodeWebP decodes the whole image.
func (d *Decoder) decodeWebP(dst *pixels.Image, src []byte, gray bool) error {
	m, err := webp.Decode(bytes.NewReader(src))
	if err != nil {
		return fromGo(err)
	}
	switch m := m.(type) {
	case *image.YCbCr:
		fromVP8(dst, m)
	case *image.NYCbCrA:
		fromVP8(dst, &m.YCbCr)
	default:
		return fromImage(dst, m, gray)
	}
	if gray {
		toGray(dst)
	}
	return nil
}

// fromVP8 converts the planes of lossy WebP as libwebp does (upsampling.c, yuv.h): chroma weighted 9:3:3:1 between the
// four samples around a pixel, and limited-range BT.601.
func fromVP8(dst *pixels.Image, m *image.YCbCr) {
	w, h := m.Rect.Dx(), m.Rect.Dy()
	dst.Reset(w, h, 3)
	columns, rows := (w+1)/2, (h+1)/2
	for y := range h {
		near := y / 2
		far := min(max(near-1+y%2*2, 0), rows-1)
		row, luma := dst.Row(y), m.Y[y*m.YStride:][:w]
		cb, cbFar := m.Cb[near*m.CStride:][:columns], m.Cb[far*m.CStride:][:columns]
		cr, crFar := m.Cr[near*m.CStride:][:columns], m.Cr[far*m.CStride:][:columns]
		for x := range w {
			side := x / 2
			beside := side - 1 + x%2*2
			var u, v int32
			if beside < 0 || beside >= columns {
				u, v = edge(cb[side], cbFar[side]), edge(cr[side], crFar[side])
			} else {
				u = between(cb[side], cb[beside], cbFar[side], cbFar[beside])
				v = between(cr[side], cr[beside], crFar[side], crFar[beside])
			}
			row[3*x], row[3*x+1], row[3*x+2] = vp8ToRGB(int32(luma[x]), u, v)
		}
	}
}

// edge returns the chroma of a pixel in the first column, or the last of an even width.
func edge(near, far byte) int32 { return (3*int32(near) + int32(far) + 2) >> 2 }

// between returns the chroma of a pixel next to sample near, with libwebp's two roundings.
func between(near, beside, far, diagonal byte) int32 {
	n, b, f, d := int32(near), int32(beside), int32(far), int32(diagonal)
	return ((n+b+f+d+8+2*(b+f))>>3 + n) >> 1
}

func vp8ToRGB(y, u, v int32) (r, g, b byte) {
	clip := func(x int32) byte { return byte(min(max(x>>6, 0), 255)) }
	y = y * 19077 >> 8
	return clip(y + v*26149>>8 - 14234), clip(y - u*6419>>8 - v*13320>>8 + 8708), clip(y + u*33050>>8 - 17685)
}
