package codec

import (
	"bytes"
	"image"

	"golang.org/x/image/webp"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// decodeWebPGo decodes the whole image with x/image/webp, for builds without cgo.
func decodeWebPGo(dst *pixels.Image, src []byte, h *Header, want Want) error {
	return guarded(h, dst, func() error {
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
			return fromImage(dst, m, want.Gray)
		}
		if want.Gray {
			toGray(dst)
		}
		return nil
	})
}

// fromVP8 converts the planes of lossy WebP as libwebp does (upsampling.c, yuv.h): chroma weighted
// 9:3:3:1 between the four samples around a pixel, and limited-range BT.601.
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

// between returns the chroma of a pixel next to sample near, rounded twice as in libwebp.
func between(near, beside, far, diagonal byte) int32 {
	n := int32(near)
	b := int32(beside)
	f := int32(far)
	d := int32(diagonal)
	return ((n+b+f+d+8+2*(b+f))>>3 + n) >> 1
}

func vp8ToRGB(y, u, v int32) (r, g, b byte) {
	clip := func(x int32) byte { return byte(min(max(x>>6, 0), 255)) }
	y = y * 19077 >> 8
	return clip(y + v*26149>>8 - 14234), clip(y - u*6419>>8 - v*13320>>8 + 8708),
		clip(y + u*33050>>8 - 17685)
}
