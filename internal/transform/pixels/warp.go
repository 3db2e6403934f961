package pixels

import (
	"fmt"
	"math"
)

// warp sets each pixel of dst to what filter finds around a point of src. The pixel's centre (x, y)
// maps to (m0*x + m1*y + m2, m3*x + m4*y + m5), divided by m6*x + m7*y + 1 if projective. Points
// outside src give the colour fill.
type warp struct {
	dst, src   *Image
	m          [8]float64
	projective bool
	filter     Filter
	fill       [3]byte
}

// Affine sets dst to an image of width x height out of src, as PIL's transform with AFFINE and
// these six numbers. fill is the colour outside of src. filter is Nearest, Bilinear or Bicubic,
// none of them antialiased here. dst must not share pixels with src.
func (e *Editor) Affine(
	dst, src *Image, width, height int, m [6]float64, filter Filter, fill [3]byte,
) {
	dst.Reset(width, height, src.Channels)
	switch w := (warp{dst: dst, src: src, filter: filter, fill: fill}); {
	case filter != Nearest:
		copy(w.m[:], m[:])
		e.warp(&w)
	case m[1] == 0 && m[3] == 0:
		e.scale(dst, src, m, fill)
	case fits(m, 0, 0) && fits(m, width, height) && fits(m, 0, height) && fits(m, width, 0):
		e.shift(dst, src, fixedPoint(m), fill)
	default:
		stepwise(dst, src, m, fill)
	}
}

// Perspective is like Affine, as PIL's transform with PERSPECTIVE and these eight numbers.
func (e *Editor) Perspective(
	dst, src *Image, width, height int, m [8]float64, filter Filter, fill [3]byte,
) {
	dst.Reset(width, height, src.Channels)
	e.warp(&warp{dst, src, m, true, filter, fill})
}

func (w *warp) check() {
	if w.filter != Nearest && w.filter != Bilinear && w.filter != Bicubic {
		panic(fmt.Sprintf("pixels: transform with filter %v: it must be nearest, bilinear or "+
			"bicubic", w.filter))
	}
}

// colour sets all pixels of a row.
func colour(row []byte, channels int, fill *[3]byte) {
	if channels == 1 || fill[0] == fill[1] && fill[1] == fill[2] {
		for i := range row {
			row[i] = fill[0]
		}
		return
	}
	for ; len(row) >= 3; row = row[3:] {
		row[0] = fill[0]
		row[1] = fill[1]
		row[2] = fill[2]
	}
}

// within returns the integer part of v, or -1 if v is outside [0, size).
func within(v float64, size int) int {
	if v >= 0 && v < float64(size) {
		return int(v)
	}
	return -1
}

// scale is Affine for Nearest without rotation or shear. It adds the scale once per pixel, as
// Pillow's ImagingScaleAffine does, to get the same rounding errors.
func (e *Editor) scale(dst, src *Image, m [6]float64, fill [3]byte) {
	n := src.Channels
	e.columns = grow(e.columns, dst.Width)
	first, end := dst.Width, 0
	at := m[2] + float64(m[0]*0.5)
	for x := range dst.Width {
		column := within(at, src.Width)
		if column >= 0 {
			first, end = min(first, x), x+1
		}
		e.columns[x] = int32(column * n)
		at += m[0]
	}
	var run bool // whether the columns are consecutive
	if first < end {
		run = m[0] == 1 && int(e.columns[end-1]-e.columns[first]) == (end-1-first)*n
	}
	at = m[5] + float64(m[4]*0.5)
	for y := range dst.Height {
		to := dst.Row(y)
		line := within(at, src.Height)
		at += m[4]
		switch {
		case line < 0 || first >= end:
			colour(to, n, &fill)
			continue
		case run:
			copy(to[first*n:end*n], src.Row(line)[e.columns[first]:])
		default:
			pick(to[first*n:], src.Row(line), e.columns[first:end], n)
		}
		colour(to[:first*n], n, &fill)
		colour(to[end*n:], n, &fill)
	}
}

// pick copies the pixels at these positions.
func pick(to, from []byte, positions []int32, channels int) {
	if channels == 1 {
		for i, p := range positions {
			to[i] = from[p]
		}
		return
	}
	for i, p := range positions {
		pixel, target := from[p:p+3:p+3], to[3*i:3*i+3:3*i+3]
		target[0] = pixel[0]
		target[1] = pixel[1]
		target[2] = pixel[2]
	}
}

// fits reports whether the point that a corner maps to can be given in 16.16 bits.
func fits(m [6]float64, x, y int) bool {
	u := float64(float64(x)*m[0]) + float64(float64(y)*m[1]) + m[2]
	v := float64(float64(x)*m[3]) + float64(float64(y)*m[4]) + m[5]
	return math.Abs(u) < 32768 && math.Abs(v) < 32768
}

// fixed is the matrix of an affine transform for Nearest, in 16.16 bits: m[2] and m[5] are the
// point of the first pixel's centre.
type fixed [6]int32

func fixedPoint(m [6]float64) (f fixed) {
	for i, v := range [6]float64{
		m[0], m[1], m[2] + float64(m[0]*0.5) + float64(m[1]*0.5),
		m[3], m[4], m[5] + float64(m[3]*0.5) + float64(m[4]*0.5),
	} {
		v = math.Floor(float64(v*65536) + 0.5)
		f[i] = math.MinInt32 // as x86-64 converts what is too large
		if v >= math.MinInt32 && v <= math.MaxInt32 {
			f[i] = int32(v)
		}
	}
	return f
}

// stepwise is Affine for Nearest where 16.16 bits do not suffice.
func stepwise(dst, src *Image, m [6]float64, fill [3]byte) {
	n := src.Channels
	u0 := m[2] + float64(m[1]*0.5) + float64(m[0]*0.5)
	v0 := m[5] + float64(m[4]*0.5) + float64(m[3]*0.5)
	for y := range dst.Height {
		to := dst.Row(y)
		colour(to, n, &fill)
		u := u0
		v := v0
		for x := range dst.Width {
			column, line := within(u, src.Width), within(v, src.Height)
			if column >= 0 && line >= 0 {
				copy(to[x*n:(x+1)*n], src.Row(line)[column*n:])
			}
			u += m[0]
			v += m[3]
		}
		u0 += m[1]
		v0 += m[4]
	}
}
