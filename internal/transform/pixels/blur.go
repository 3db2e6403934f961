package pixels

import (
	"fmt"
	"math"
)

// boxPasses is the number of box passes along each axis that PIL approximates a Gaussian by.
const boxPasses = 3

// box is a box filter: the 2*radius+1 samples around a sample have the weight inner, and the next
// one on either side has outer, in 24-bit fractions. Samples past the edge equal those at the edge.
type box struct {
	radius       int
	inner, outer uint32
}

// GaussianBlur sets dst to src, blurred with these standard deviations as PIL's
// ImageFilter.GaussianBlur, by three box passes along each axis. dst must not share pixels with
// src.
func (e *Editor) GaussianBlur(dst, src *Image, x, y float32) {
	dst.Reset(src.Width, src.Height, src.Channels)
	e.boxBlur(dst, src, gaussianBox(x), gaussianBox(y))
}

// gaussianBox returns the box whose passes approximate a Gaussian (Pillow's BoxBlur.c, with its
// types and order of operations).
func gaussianBox(sigma float32) box {
	square := float32(sigma*sigma) / boxPasses
	length := float32(math.Sqrt(float64(12.0*float64(square)) + 1.0))
	whole := float32(math.Floor((float64(length) - 1.0) / 2.0))
	inner := float32(whole * (whole + 1))
	part := float32(float32(2*whole)+1) * float32(inner-float32(3*square))
	part /= float32(6 * (square - float32((whole+1)*(whole+1))))
	radius := whole + part

	b := box{radius: int(radius)}
	b.inner = uint32(float32(1<<24) / float32(float32(radius*2)+1))
	b.outer = (1<<24 - uint32(b.radius*2+1)*b.inner) / 2
	return b
}

// Convolve sets dst to the convolution of src with the outer product of two kernels of odd lengths,
// mirroring the image at its edges without repeating them, as torchvision's gaussian_blur. It sums
// in float32 along columns first and rounds the result to nearest. torchvision sums the elements of
// a two-dimensional kernel in an order that depends on torch's build, so results differ by at most
// one level, where a sum is within about 1e-4 of the middle of two levels. dst must not share
// pixels with src.
func (e *Editor) Convolve(dst, src *Image, across, down []float32) error {
	if len(across)/2 >= src.Width || len(down)/2 >= src.Height {
		return fmt.Errorf("a kernel of %dx%d is too large for an image of %dx%d: half of it must be "+
			"smaller than the image", len(across), len(down), src.Width, src.Height)
	}
	dst.Reset(src.Width, src.Height, src.Channels)
	e.convolve(dst, src, trimmed(across), trimmed(down))
	return nil
}

// trimmed omits the ends of a kernel that are too small to be seen in a level, among them numbers
// so small that processors compute with them slowly.
func trimmed(kernel []float32) []float32 {
	const least = 1e-9
	for len(kernel) > 1 && kernel[0] < least && kernel[len(kernel)-1] < least {
		kernel = kernel[1 : len(kernel)-1]
	}
	return kernel
}

// GaussianKernel returns torchvision's kernel of an odd length, in float32. v2 selects the
// computation of torchvision.transforms.v2, whose last bits differ. The result is in to, if that is
// large enough.
func GaussianKernel(to []float32, length int, sigma float64, v2 bool) []float32 {
	to = grow(to, length)
	end := float32(length-1) * 0.5
	scale := -0.5
	if v2 {
		end = float32(float64(length-1) / (2.0 * math.Sqrt(2.0)))
		scale = -1
	}
	step := float32(0)
	if length > 1 {
		step = 2 * end / float32(length-1)
	}
	sum := 0.0
	for i := range to {
		// As torch's linspace, from either end.
		x := -end + float32(step*float32(i))
		if i >= length/2 {
			x = end - float32(step*float32(length-1-i))
		}
		x /= float32(sigma)
		to[i] = float32(math.Exp(scale * float64(float32(x*x))))
		sum += float64(to[i])
	}
	for i := range to {
		to[i] /= float32(sum)
	}
	return to
}
