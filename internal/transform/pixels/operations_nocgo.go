//go:build !cgo

package pixels

import "math"

// rowScratch is empty: only C's kernels need it.
type rowScratch struct{}

func (m *Image) mapAll(_ kernel, t table)                   { m.mapAllGo(&t) }
func (m *Image) mapEach(_ kernel, t *[3]table)              { m.mapEachGo(t) }
func (m *Image) mirror(_ kernel, flip Flip)                 { m.mirrorGo(flip) }
func (m *Image) count(_ kernel, h *histogram)               { m.countGo(h) }
func (m *Image) extremes(kernel) (least, most [3]byte)      { return m.extremesGo() }
func (m *Image) lumas(kernel) int                           { return m.lumasGo() }
func (m *Image) gray(_ kernel, dst *Image)                  { m.grayGo(dst) }
func (m *Image) saturate(_ kernel, factor float32)          { m.saturateGo(factor) }
func (m *Image) turn(_ kernel, shift byte)                  { m.turnGo(shift) }
func (e *Editor) sharpen(dst, src *Image, factor float32)   { sharpenGo(dst, src, factor) }
func (e *Editor) boxBlur(dst, src *Image, across, down box) { e.boxBlurGo(dst, src, across, down) }

func (e *Editor) convolve(dst, src *Image, across, down []float32) {
	e.convolveGo(dst, src, across, down)
}

func (e *Editor) shift(dst, src *Image, m fixed, fill [3]byte) { shiftGo(dst, src, m, fill) }

func (e *Editor) warp(w *warp) {
	w.check()
	w.runGo()
}

// SinCos returns the sine and cosine of x as Python computes them.
func SinCos(x float64) (sin, cos float64) {
	s, c := sinCosGo(x)
	return s.hi, c.hi
}

// Tan returns the tangent of x as Python computes it.
func Tan(x float64) float64 { return tanGo(x) }

// Log returns the natural logarithm of x. It may differ from the C library's in the last bit.
func Log(x float64) float64 { return math.Log(x) }
