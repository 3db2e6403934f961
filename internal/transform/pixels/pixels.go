// Package pixels holds 8-bit interleaved images and the arithmetic that turns them into tensors:
// resizing as PIL does it, and packing as torchvision's ToTensor and Normalize do it, to the bit.
//
// A Resizer belongs to one goroutine and reuses its tables and buffers; a Packer does not change
// once made, and any number of goroutines may use it. Neither allocates in steady state.
//
// Each operation exists twice: in Go (twin_*.go), and in C with vector instructions chosen when the
// program runs (kernels.c, where the build has cgo). Both give the same bits, and the tests hold
// one against the other. One call crosses into C per operation and image.
//
// It reads no files and knows no formats (package codec does), and decides no crops (package
// transform does).
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

// Reset makes m an image of that size without padding. It reuses Pix where that is large enough,
// and clears nothing.
func (m *Image) Reset(width, height, channels int) {
	n := width * height * channels
	if cap(m.Pix) < n {
		m.Pix = make([]byte, n)
	}
	*m = Image{m.Pix[:n], width, height, channels, width * channels}
}

// Bounds returns the image's rectangle, from (0, 0).
func (m *Image) Bounds() image.Rectangle { return image.Rect(0, 0, m.Width, m.Height) }

// Sub returns the part r of m, which shares m's pixels. What of r lies outside m is cut off.
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

// grow returns s with length n, and its old contents or not.
func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return slices.Grow(s[:0], n)[:n]
	}
	return s[:n]
}
