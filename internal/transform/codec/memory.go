package codec

import (
	"encoding/binary"
	"fmt"
	"image"
)

// MemoryError reports that an image needs more than Decoder.Memory. It is returned before the
// pixels are read, so they may be invalid as well.
type MemoryError struct {
	Need int64 // bytes that the image needs at a time, including the result
}

func (e *MemoryError) Error() string {
	return fmt.Sprintf("the image needs %d bytes of memory", e.Need)
}

// wholePNG is the largest size in bytes of a PNG's rows that are inflated at once, which is several
// times as fast as in parts.
const wholePNG = 256 << 20

// take records that an image uses need bytes. It returns a MemoryError if that exceeds d.Memory.
func (d *Decoder) take(need int64) error {
	if d.Memory > 0 && need > d.Memory {
		return &MemoryError{need}
	}
	d.taken = max(d.taken, need)
	return nil
}

// Taken returns the number of bytes that the last image used at a time, including the result.
func (d *Decoder) Taken() int64 { return d.taken }

// decoded returns the size in bytes of a decoded part, doubled if it is oriented afterwards.
func decoded(region image.Rectangle, channels int, h *Header) int64 {
	n := int64(region.Dx()) * int64(region.Dy()) * int64(channels)
	if h.Orientation != 1 {
		n *= 2
	}
	return n
}

// whole returns the region that is the whole image.
func whole(h *Header) image.Rectangle { return image.Rect(0, 0, h.Width, h.Height) }

// jpegBuffers returns how many bytes libjpeg uses for rows of samples and, for an image with
// several scans, for the coefficients, which it keeps until it has read all scans.
func jpegBuffers(src []byte, h *Header) int64 {
	const rowsPerSample, rowsBeside = 12, 20 // of 8 x 8 blocks with a margin, and of pixels
	frame := src[h.frame:]
	n := int(frame[5])
	if len(frame) < 6+3*n {
		return 0 // libjpeg reports the error
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

// blocks returns how many blocks of 8 samples a component has along an axis, rounded up to whole
// MCUs.
func blocks(size, factor, most int) int64 {
	units := (size + 8*most - 1) / (8 * most)
	return int64(units * max(factor, 1))
}

// scanned returns the number of components in the first scan of a JPEG, searching from a marker
// after the frame header on; 0 if there is no scan.
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

// goPNG returns how many bytes image/png uses: an image, another one if the PNG is interlaced, and
// a copy of the file, for mended.
func goPNG(src []byte, h *Header) int64 {
	pixel := int64(4)
	switch {
	case src[pngDepthAt] == 16:
		pixel = 8
	case src[pngColourAt] == pngPalette:
		pixel = 1
	}
	if src[pngInterlaceAt] != 0 {
		pixel *= 2
	}
	return int64(h.Width)*int64(h.Height)*pixel + 2*int64(len(src)) + decoded(whole(h), 3, h)
}

// webpBuffers returns how many bytes a WebP decoder uses in addition to the result: rows of a lossy
// image, and four bytes per pixel of a lossless image or of the lossless alpha of a lossy one.
func webpBuffers(src []byte, h *Header) int64 {
	const perColumn, tables = 256, 1 << 20
	bytes := int64(h.Width)*perColumn + tables
	if !hasPrefix(src, 12, "VP8 ") {
		bytes += int64(h.Width) * int64(h.Height) * 6
	}
	return bytes
}
