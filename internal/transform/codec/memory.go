package codec

import (
	"encoding/binary"
	"fmt"
	"image"
)

// MemoryError refuses to decode an image for which Decoder.Memory is too little. Nothing is known
// of its pixels yet.
type MemoryError struct {
	Need int64 // bytes that the image takes at once, the result included
}

func (e *MemoryError) Error() string {
	return fmt.Sprintf("the image needs %d bytes of memory", e.Need)
}

// wholePNG is the most bytes of a PNG's rows that are inflated in one piece, which is several times
// as fast as row by row.
const wholePNG = 256 << 20

// take reports whether an image may take need bytes, and notes them.
func (d *Decoder) take(need int64) error {
	if d.Memory > 0 && need > d.Memory {
		return &MemoryError{need}
	}
	d.taken = max(d.taken, need)
	return nil
}

// Taken is the number of bytes that the last image took at once, the result included.
func (d *Decoder) Taken() int64 { return d.taken }

// decoded is how many bytes a decoded part takes, and as much again where it is turned afterwards.
func decoded(region image.Rectangle, channels int, h *Header) int64 {
	n := int64(region.Dx()) * int64(region.Dy()) * int64(channels)
	if h.Orientation != 1 {
		n *= 2
	}
	return n
}

// whole is the region of an image that is decoded as a whole.
func whole(h *Header) image.Rectangle { return image.Rect(0, 0, h.Width, h.Height) }

// jpegBuffers is how many bytes libjpeg takes for rows of samples, and for the coefficients of an
// image of several scans, which it keeps until it has read them all.
func jpegBuffers(src []byte, h *Header) int64 {
	const rowsPerSample, rowsBeside = 12, 20 // of 8 x 8 blocks with a margin, and of pixels
	frame := src[h.frame:]
	n := int(frame[5])
	if len(frame) < 6+3*n {
		return 0 // libjpeg says so
	}
	across, down := 1, 1
	for c := range n {
		factors := frame[6+3*c+1]
		across, down = max(across, int(factors>>4)), max(down, int(factors&15))
	}
	bytes := int64(h.Width) * int64(n*rowsPerSample*down+rowsBeside)
	if !h.Progressive && scanned(src[h.frame+6+3*n:]) == n {
		return bytes
	}
	for c := range n {
		factors := frame[6+3*c+1]
		bytes += blocks(h.Width, int(factors>>4), across) * blocks(h.Height, int(factors&15),
			down) * 64 * 2
	}
	return bytes
}

// blocks is how many blocks of 8 samples a component has along an axis, filled up to whole units of
// factor blocks.
func blocks(size, factor, most int) int64 {
	units := (size + 8*most - 1) / (8 * most)
	return int64(units * max(factor, 1))
}

// scanned is how many components the first scan of a JPEG has, from a marker after its frame header
// on; 0 where there is none.
func scanned(src []byte) int {
	for at := 0; at+4 < len(src); {
		if src[at] != 0xff || src[at+1] == 0xff {
			at++
			continue
		}
		if src[at+1] == markerSOS {
			return int(src[at+4])
		}
		at += 2 + int(binary.BigEndian.Uint16(src[at+2:]))
	}
	return 0
}

// goPNG is how many bytes image/png takes: an image, and another one where the rows are interlaced;
// and a copy of the file, to mend it.
func goPNG(src []byte, h *Header) int64 {
	const depth, colour, interlace = 24, 25, 28
	pixel := int64(4)
	switch {
	case src[depth] == 16:
		pixel = 8
	case src[colour] == pngPalette:
		pixel = 1
	}
	if src[interlace] != 0 {
		pixel *= 2
	}
	return int64(h.Width)*int64(h.Height)*pixel + 2*int64(len(src)) + decoded(whole(h), 3, h)
}

// webpBuffers is how many bytes a WebP decoder takes beside the result: rows of a lossy image; and
// four bytes for each pixel of a lossless one, or of the alpha of a lossy one, which is lossless.
func webpBuffers(src []byte, h *Header) int64 {
	const perColumn, tables = 256, 1 << 20
	bytes := int64(h.Width)*perColumn + tables
	if !hasPrefix(src, 12, "VP8 ") {
		bytes += int64(h.Width) * int64(h.Height) * 6
	}
	return bytes
}
