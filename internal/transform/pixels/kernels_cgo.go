//go:build cgo

package pixels

/*
#cgo CFLAGS: -std=c11 -O3 -Wall -Wno-psabi
#cgo noescape pixels_resample
#cgo nocallback pixels_resample
#cgo noescape pixels_pack
#cgo nocallback pixels_pack
#include "kernels.h"
*/
import "C"

import (
	"unsafe"
)

// level is the best kernel level that this machine supports.
var level = int(C.pixels_level())

// address returns the address of the first element of s.
func address[T any](s []T) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(s)) }

func (j *resample) run(k kernel) {
	switch k {
	case best:
		j.runC(level)
	case inGo:
		j.runGo()
	default:
		j.runC(int(k - plain))
	}
}

// runC resamples in C.
func (j *resample) runC(level int) {
	var none axis
	h, v := &none, &none
	if j.horizontal != nil {
		h = j.horizontal
	}
	if j.vertical != nil {
		v = j.vertical
	}
	if j.horizontal != nil && j.vertical != nil {
		*j.rows = grow(*j.rows, j.dst.Width*j.src.Height*j.src.Channels)
	}
	n := C.pixels_scratch(C.int(j.dst.Width), C.int(j.dst.Height), C.int(j.src.Width),
		C.int(h.taps), C.int(v.taps))
	*j.scratch = grow(*j.scratch, int(n))
	C.pixels_resample(
		C.int(level), (*C.uint8_t)(address(j.dst.Pix)), C.int(j.dst.Width), C.int(j.dst.Height),
		C.int(j.dst.Channels),
		(*C.uint8_t)(address(j.src.Pix)), C.int(j.src.Width), C.int(j.src.Height),
		C.int(j.src.Stride), C.size_t(len(j.src.Pix)),
		h.c(j.first.X), v.c(j.first.Y), (*C.uint8_t)(address(*j.rows)),
		(*C.uint8_t)(address(*j.scratch)),
	)
}

func (a *axis) c(origin int) C.pixels_axis {
	return C.pixels_axis{
		C.int(a.taps), C.int(origin),
		(*C.int32_t)(address(a.first)), (*C.int32_t)(address(a.counts)),
		(*C.int32_t)(address(a.weights)),
	}
}

// kernelPlan is the Packer's table and constants, for C.
type kernelPlan struct{ c C.pixels_plan }

// prepare fills in the plan. Vector code multiplies by reciprocals instead of dividing. prepare
// checks for every sample and channel that the result equals the table; if not, the plan uses table
// lookups.
func (k *kernelPlan) prepare(p *Packer) {
	t := &p.target
	k.c._type = C.int(t.Type)
	if t.Layout == CHW {
		k.c.planar = 1
	}
	if t.Scale != Levels {
		k.c.unit = 1
	}
	k.c.unit_high, k.c.unit_low = reciprocal(255)
	if t.Scale == Product {
		k.c.unit_low = 0
	}
	for c := range channels {
		if len(t.Mean) > 0 {
			k.c.normalize = 1
			i := min(c, len(t.Mean)-1)
			k.c.mean[c] = C.float(t.Mean[i])
			k.c.high[c], k.c.low[c] = reciprocal(t.Std[i])
		}
		for x, word := range p.words[c] {
			k.c.words[c][x] = C.uint32_t(word)
		}
	}
	all := Image{make([]byte, 0, 256*channels), 256, 1, channels, 256 * channels}
	for x := range 256 {
		all.Pix = append(all.Pix, byte(x), byte(x), byte(x))
	}
	computed, looked := make([]byte, p.Size(256, 1, channels)),
		make([]byte, p.Size(256, 1, channels))
	p.packGo(looked, &all, 0)
	k.c.arithmetic = 1
	p.pack(computed, &all, 0)
	if string(computed) != string(looked) {
		k.c.arithmetic = 0
	}
}

// reciprocal returns 1/x as the sum of two numbers, of which the second corrects the first.
func reciprocal(x float32) (high, low C.float) {
	exact := 1 / float64(x)
	first := float32(exact)
	return C.float(first), C.float(exact - float64(first))
}

func (p *Packer) pack(dst []byte, src *Image, flip Flip) { p.packC(level, dst, src, flip) }

func (p *Packer) packC(level int, dst []byte, src *Image, flip Flip) {
	C.pixels_pack(C.int(level), &p.kernels.c, (*C.uint8_t)(address(dst)), src.c(), C.int(flip))
}
