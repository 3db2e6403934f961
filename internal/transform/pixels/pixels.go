// Package pixels implements 8-bit interleaved images and their conversion to tensors: resizing and
// the operations of augmentation policies as in PIL, and packing as in torchvision's ToTensor and
// Normalize, bit for bit. Convolve alone may differ, from torchvision's gaussian_blur by one level.
//
// A Resizer and an Editor reuse their tables and buffers and are not safe for concurrent use; a
// Packer is immutable and safe for concurrent use. None of them allocates in steady state.
//
// Each operation has two implementations: one in Go (twin_*.go), and with cgo one in C, with vector
// instructions chosen at run time (resize.c, pack.c; operations.c, blur.c and warp.c, whose loops
// are in rows_*). Both give the same bits, which tests verify by comparing them. Each operation on
// an image makes one or two calls into C.
//
// The package does not read files or decode formats (package codec does), and does not choose crops
// (package transform does).
package pixels

import (
	"image"
	"slices"
)

// Image is rows of interleaved 8-bit samples: one channel (gray), three (red, green, blue), or four
// (codec's CMYK). Row y starts at Pix[y*Stride].
type Image struct {
	Pix                             []byte
	Width, Height, Channels, Stride int
}

// Reset makes m an image of that size without padding. It reuses Pix if that is large enough, and
// does not clear it.
func (m *Image) Reset(width, height, channels int) {
	n := width * height * channels
	if cap(m.Pix) < n {
		m.Pix = make([]byte, n)
	}
	*m = Image{m.Pix[:n], width, height, channels, width * channels}
}

// Bounds returns the image's rectangle, from (0, 0).
func (m *Image) Bounds() image.Rectangle { return image.Rect(0, 0, m.Width, m.Height) }

// Sub returns the part of m inside r. It shares m's pixels.
func (m *Image) Sub(r image.Rectangle) Image {
	r = r.Intersect(m.Bounds())
	if r.Empty() {
		return Image{Channels: m.Channels}
	}
	first := r.Min.Y*m.Stride + r.Min.X*m.Channels
	last := (r.Max.Y-1)*m.Stride + r.Max.X*m.Channels
	return Image{m.Pix[first:last:last], r.Dx(), r.Dy(), m.Channels, m.Stride}
}

// Row returns the samples of row y.
func (m *Image) Row(y int) []byte {
	first := y * m.Stride
	return m.Pix[first : first+m.Width*m.Channels]
}

// CopyTo makes dst a copy of m, without padding.
func (m *Image) CopyTo(dst *Image) {
	dst.Reset(m.Width, m.Height, m.Channels)
	for y := range m.Height {
		copy(dst.Row(y), m.Row(y))
	}
}

// grow returns s with length n and unspecified contents.
func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return slices.Grow(s[:0], n)[:n]
	}
	return s[:n]
}
