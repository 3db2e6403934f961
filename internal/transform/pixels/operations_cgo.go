//go:build cgo

package pixels

/*
#cgo noescape pixels_map
#cgo nocallback pixels_map
#cgo noescape pixels_mirror
#cgo nocallback pixels_mirror
#cgo noescape pixels_count
#cgo nocallback pixels_count
#cgo noescape pixels_extremes
#cgo nocallback pixels_extremes
#cgo noescape pixels_lumas
#cgo nocallback pixels_lumas
#cgo noescape pixels_gray
#cgo nocallback pixels_gray
#cgo noescape pixels_saturate
#cgo nocallback pixels_saturate
#cgo noescape pixels_turn
#cgo nocallback pixels_turn
#cgo noescape pixels_sharpen
#cgo nocallback pixels_sharpen
#cgo noescape pixels_box_blur
#cgo nocallback pixels_box_blur
#cgo noescape pixels_convolve
#cgo nocallback pixels_convolve
#cgo noescape pixels_shift
#cgo nocallback pixels_shift
#cgo noescape pixels_warp
#cgo nocallback pixels_warp
#cgo LDFLAGS: -lm
#include "kernels.h"
#include <math.h>
*/
import "C"

// rowScratch is memory of C's kernels for one row.
type rowScratch struct {
	points []float64 // of a warp
	words  []uint16  // the sums of columns
}

// level returns the level of C for a kernel other than inGo.
func (k kernel) level() C.int {
	if k == best {
		return C.int(level)
	}
	return C.int(k - plain)
}

func (m *Image) c() C.pixels_image {
	return C.pixels_image{
		(*C.uint8_t)(address(m.Pix)), C.int(m.Width), C.int(m.Height), C.int(m.Channels),
		C.int(m.Stride),
	}
}

func (m *Image) mapAll(k kernel, t table) {
	if k == inGo {
		m.mapAllGo(&t)
		return
	}
	C.pixels_map(k.level(), m.c(), (*C.uint8_t)(&t[0]), 0)
}

func (m *Image) mapEach(k kernel, t *[3]table) {
	if k == inGo {
		m.mapEachGo(t)
		return
	}
	each := C.int(0)
	if m.Channels == 3 {
		each = 1
	}
	C.pixels_map(k.level(), m.c(), (*C.uint8_t)(&t[0][0]), each)
}

func (m *Image) mirror(k kernel, flip Flip) {
	if k == inGo {
		m.mirrorGo(flip)
		return
	}
	C.pixels_mirror(k.level(), m.c(), C.int(flip))
}

func (m *Image) count(k kernel, h *histogram) {
	if k == inGo {
		m.countGo(h)
		return
	}
	C.pixels_count(m.c(), (*C.uint32_t)(&h[0][0]))
}

func (m *Image) extremes(k kernel) (least, most [3]byte) {
	if k == inGo {
		return m.extremesGo()
	}
	least = [3]byte{255, 255, 255}
	C.pixels_extremes(k.level(), m.c(), (*C.uint8_t)(&least[0]), (*C.uint8_t)(&most[0]))
	return least, most
}

func (m *Image) lumas(k kernel) int {
	if k == inGo {
		return m.lumasGo()
	}
	return int(C.pixels_lumas(k.level(), m.c()))
}

func (m *Image) gray(k kernel, dst *Image) {
	if k == inGo {
		m.grayGo(dst)
		return
	}
	C.pixels_gray(k.level(), dst.c(), m.c())
}

func (m *Image) saturate(k kernel, factor float32) {
	if k == inGo {
		m.saturateGo(factor)
		return
	}
	C.pixels_saturate(k.level(), m.c(), C.float(factor))
}

func (m *Image) turn(k kernel, shift byte) {
	if k == inGo || k == best && level == 0 { // whose tables are faster than scalar arithmetic
		m.turnGo(shift)
		return
	}
	t := hueTables()
	C.pixels_turn(k.level(), m.c(), C.int(shift), (*C.float)(&t.rest[0]), (*C.float)(&t.share[0]))
}

func (e *Editor) sharpen(dst, src *Image, factor float32) {
	if e.kernel == inGo {
		sharpenGo(dst, src, factor)
		return
	}
	e.scratch.words = grow(e.scratch.words, src.Width*src.Channels)
	C.pixels_sharpen(e.kernel.level(), dst.c(), src.c(), C.float(factor),
		(*C.uint16_t)(address(e.scratch.words)))
}

func (b box) c() C.pixels_box {
	return C.pixels_box{C.int(b.radius), C.uint32_t(b.inner), C.uint32_t(b.outer)}
}

func (e *Editor) boxBlur(dst, src *Image, across, down box) {
	if e.kernel == inGo {
		e.boxBlurGo(dst, src, across, down)
		return
	}
	e.between = grow(e.between, 2*C.pixels_line*max(src.Width, src.Height))
	C.pixels_box_blur(e.kernel.level(), dst.c(), src.c(), across.c(), down.c(),
		(*C.uint8_t)(address(e.between)))
}

func (e *Editor) convolve(dst, src *Image, across, down []float32) {
	if e.kernel == inGo {
		e.convolveGo(dst, src, across, down)
		return
	}
	x, y := C.int(len(across)), C.int(len(down))
	e.sums = grow(e.sums, int(C.pixels_sums(C.int(src.Width), C.int(src.Channels), x, y)))
	e.columns = grow(e.columns, max(len(across), len(down)))
	C.pixels_convolve(e.kernel.level(), dst.c(), src.c(), (*C.float)(address(across)), x,
		(*C.float)(address(down)), y, (*C.float)(address(e.sums)),
		(*C.int32_t)(address(e.columns)))
}

func (e *Editor) shift(dst, src *Image, m fixed, fill [3]byte) {
	if e.kernel == inGo {
		shiftGo(dst, src, m, fill)
		return
	}
	C.pixels_shift(e.kernel.level(), dst.c(), src.c(), (*C.int32_t)(&m[0]),
		(*C.uint8_t)(&fill[0]))
}

func (e *Editor) warp(w *warp) {
	w.check()
	if e.kernel == inGo {
		w.runGo()
		return
	}
	t := C.pixels_transform{filter: C.int(w.filter)}
	for i, v := range w.m {
		t.m[i] = C.double(v)
	}
	for i, v := range w.fill {
		t.fill[i] = C.uint8_t(v)
	}
	if w.projective {
		t.projective = 1
	}
	e.scratch.points = grow(e.scratch.points, 2*w.dst.Width)
	C.pixels_warp(e.kernel.level(), w.dst.c(), w.src.c(), &t,
		(*C.double)(address(e.scratch.points)))
}

// SinCos returns the sine and cosine of x as Python computes them.
func SinCos(x float64) (sin, cos float64) {
	return float64(C.sin(C.double(x))), float64(C.cos(C.double(x)))
}

// Log returns the natural logarithm of x, as the C library computes it.
func Log(x float64) float64 { return float64(C.log(C.double(x))) }

// Tan returns the tangent of x as Python computes it.
func Tan(x float64) float64 { return float64(C.tan(C.double(x))) }
