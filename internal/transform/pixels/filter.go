package pixels

import (
	"image"
	"math"
)

// Filter is one of PIL's resampling filters.
type Filter uint8

// PIL's filters. All but Nearest are antialiased: where an image shrinks, their support grows with
// the scale.
const (
	Nearest Filter = iota
	Box
	Bilinear
	Hamming
	Bicubic
	Lanczos
)

func (f Filter) String() string {
	return [...]string{"nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"}[f]
}

// support returns how far from the centre the filter reaches, in target pixels.
func (f Filter) support() float64 {
	return [...]float64{0, 0.5, 1, 1, 2, 3}[f]
}

// at returns the filter's weight at distance x (Pillow's Resample.c, with its order of operations:
// the last bit counts).
func (f Filter) at(x float64) float64 {
	switch f {
	case Box:
		if x > -0.5 && x <= 0.5 {
			return 1
		}
	case Bilinear:
		if x = math.Abs(x); x < 1 {
			return 1 - x
		}
	case Hamming:
		switch x = math.Abs(x); {
		case x == 0:
			return 1
		case x < 1:
			x *= math.Pi
			// Pillow writes these constants as float.
			return math.Sin(x) / x * (float64(float32(0.54)) + float64(float32(0.46))*math.Cos(x))
		}
	case Bicubic:
		const a = -0.5
		switch x = math.Abs(x); {
		case x < 1:
			return ((a+2.0)*x-(a+3.0))*x*x + 1
		case x < 2:
			return (((x-5)*x+8)*x - 4) * a
		}
	case Lanczos:
		if -3 <= x && x < 3 {
			return sinc(x) * sinc(x/3)
		}
	}
	return 0
}

func sinc(x float64) float64 {
	if x == 0 {
		return 1
	}
	x *= math.Pi
	return math.Sin(x) / x
}

// precision is the number of fraction bits of a weight: Pillow keeps 32 bits, less 8 for the sample
// and 2 for weights that overshoot.
const precision = 32 - 8 - 2

// axis holds the tables that resample one axis: target pixel i is the sum, over k, of
// weights[i*taps+k] * source[first[i]+k]. Weights past the end of the filter or of the source are
// 0. Users read taps source pixels from first[i] only if those are inside the source, and counts[i]
// pixels otherwise.
type axis struct {
	taps    int
	first   []int32
	counts  []int32
	weights []int32
	scratch []float64
	// The parameters that the tables were computed for.
	source, target, from, to int
	start, length            float64
	filter                   Filter
}

// set computes the tables that resample the length pixels from start on, out of source pixels, to
// target pixels, for targets from..to-1.
func (a *axis) set(source int, start, length float64, target, from, to int, f Filter) {
	if a.source == source && a.start == start && a.length == length && a.target == target &&
		a.from == from && a.to == to && a.filter == f {
		return
	}
	a.source = source
	a.start = start
	a.length = length
	a.target = target
	a.from = from
	a.to = to
	a.filter = f
	scale := length / float64(target)
	filterScale := max(scale, 1)
	support := f.support() * filterScale
	a.taps = int(math.Ceil(support))*2 + 1
	n := to - from
	a.first, a.counts = grow(a.first, n), grow(a.counts, n)
	a.weights, a.scratch = grow(a.weights, n*a.taps), grow(a.scratch, a.taps)
	ss := 1 / filterScale
	for i := range n {
		center := start + (float64(from+i)+0.5)*scale
		first := max(int(center-support+0.5), 0)
		count := min(int(center+support+0.5), source) - first
		w := a.scratch[:count]
		sum := 0.0
		if f == Bilinear {
			// The common case, without a call per weight.
			for k := range w {
				if x := math.Abs((float64(k+first) - center + 0.5) * ss); x < 1 {
					w[k] = 1 - x
				} else {
					w[k] = 0
				}
				sum += w[k]
			}
		} else {
			for k := range w {
				w[k] = f.at((float64(k+first) - center + 0.5) * ss)
				sum += w[k]
			}
		}
		a.first[i], a.counts[i] = int32(first), int32(count)
		fixed := a.weights[i*a.taps : (i+1)*a.taps]
		for k := range w {
			v := w[k]
			if sum != 0 {
				v /= sum
			}
			if v < 0 {
				fixed[k] = int32(-0.5 + v*(1<<precision))
			} else {
				fixed[k] = int32(0.5 + v*(1<<precision))
			}
		}
		clear(fixed[count:])
	}
}

// reach returns the source pixels that targets from..to-1 read.
func reach(source int, start, length float64, target, from, to int, f Filter) (first, last int) {
	if whole(source, start, length) && source == target || from >= to {
		return from, to
	}
	if f == Nearest {
		return nearest(source, target, from), nearest(source, target, to-1) + 1
	}
	scale := length / float64(target)
	support := f.support() * max(scale, 1)
	first = max(int(start+(float64(from)+0.5)*scale-support+0.5), 0)
	last = min(int(start+(float64(to-1)+0.5)*scale+support+0.5), source)
	return first, last
}

// whole reports whether a part is all of source pixels.
func whole(source int, start, length float64) bool {
	return start == 0 && length == float64(source)
}

// nearest returns the source pixel for target pixel i. It adds the scale once per pixel, as
// Pillow's ImagingScaleAffine does, to get the same rounding errors.
func nearest(source, target, i int) int {
	scale := float64(source) / float64(target)
	at := scale * 0.5
	for range i {
		at += scale
	}
	return min(int(at), source-1)
}

// Support returns the part of an image of srcW x srcH that Resize reads to compute the given window
// of the image resized to width x height. A decoder needs to decode only this part.
func Support(srcW, srcH, width, height int, window image.Rectangle, f Filter) image.Rectangle {
	return SupportBox(srcW, srcH, Part{0, 0, float64(srcW), float64(srcH)}, width, height, window,
		f)
}

// SupportBox is like Support, for ResizeBox.
func SupportBox(srcW, srcH int, b Part, width, height int, window image.Rectangle,
	f Filter,
) image.Rectangle {
	x0, x1 := reach(srcW, b.X, b.Width, width, window.Min.X, window.Max.X, f)
	y0, y1 := reach(srcH, b.Y, b.Height, height, window.Min.Y, window.Max.Y, f)
	return image.Rect(x0, y0, x1, y1)
}
