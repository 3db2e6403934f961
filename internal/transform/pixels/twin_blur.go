package pixels

import "math"

// boxBlurGo runs the passes along rows, then those along columns.
func (e *Editor) boxBlurGo(dst, src *Image, across, down box) {
	src.CopyTo(dst)
	n := max(dst.Width, dst.Height)
	e.between = grow(e.between, 2*n)
	line, blurred := e.between[:n], e.between[n:]
	for y := range dst.Height {
		for c := range dst.Channels {
			across.run(dst.Pix[y*dst.Stride+c:], dst.Channels, line[:dst.Width],
				blurred[:dst.Width])
		}
	}
	for i := range dst.Width * dst.Channels {
		down.run(dst.Pix[i:], dst.Stride, line[:dst.Height], blurred[:dst.Height])
	}
}

// run blurs samples that are step apart. line and blurred are scratch of their number.
func (b box) run(samples []byte, step int, line, blurred []byte) {
	for i := range line {
		line[i] = samples[i*step]
	}
	for range boxPasses {
		b.pass(blurred, line)
		line, blurred = blurred, line
	}
	for i, s := range line {
		samples[i*step] = s
	}
}

// pass is one pass along a line.
func (b box) pass(dst, src []byte) {
	last := len(src) - 1
	sum := uint32(0) // of the samples around the one before the first
	for k := -b.radius - 1; k < b.radius; k++ {
		sum += uint32(src[min(max(k, 0), last)])
	}
	for i := range dst {
		before := uint32(src[max(i-b.radius-1, 0)])
		sum += uint32(src[min(i+b.radius, last)]) - before
		after := uint32(src[min(i+b.radius+1, last)])
		dst[i] = byte((sum*b.inner + (before+after)*b.outer + 1<<23) >> 24)
	}
}

// convolveGo is Convolve.
func (e *Editor) convolveGo(dst, src *Image, across, down []float32) {
	n := src.Channels
	edge := len(across) / 2
	width := src.Width + 2*edge
	e.sums = grow(e.sums, width*n)
	for y := range src.Height {
		row := e.sums[edge*n : (edge+src.Width)*n]
		clear(row)
		for k, w := range down {
			for i, s := range src.Row(mirrored(y+k-len(down)/2, src.Height)) {
				row[i] += float32(w * float32(s))
			}
		}
		for x := range edge {
			left, right := mirrored(x-edge, src.Width), mirrored(src.Width+x, src.Width)
			copy(e.sums[x*n:(x+1)*n], row[left*n:])
			copy(e.sums[(edge+src.Width+x)*n:], row[right*n:(right+1)*n])
		}
		to := dst.Row(y)
		for i := range to {
			sum := float32(0)
			for k, w := range across {
				sum += float32(w * e.sums[i+k*n])
			}
			to[i] = byte(min(math.RoundToEven(float64(sum)), 255))
		}
	}
}

// mirrored returns the position of the sample that stands for position i of n.
func mirrored(i, n int) int {
	if i < 0 {
		return -i
	}
	if i >= n {
		return 2*(n-1) - i
	}
	return i
}
