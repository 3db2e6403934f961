package pixels

import (
	"encoding/binary"
	"image"
	"math"
)

// Eraser sets parts of packed tensors to values. The values are those of a tensor at an earlier
// point of the conversions (Target) than the packed one: they go through the rest of them. It is
// immutable and safe for concurrent use.
type Eraser struct {
	at, target Target
	as         bool // values are packed as they are
}

// NewEraser returns the Eraser for values of a tensor as in at, which are part of one as in target.
func NewEraser(at, target Target) *Eraser {
	same := at.Type == Float32 && target.Type == Float32 && len(at.Mean) == len(target.Mean)
	return &Eraser{at: at, target: target, as: same}
}

// Area is a rectangle of a tensor of this size.
type Area struct {
	image.Rectangle
	Width, Height, Channels int
}

// Fill sets an area of a packed tensor to one value, or one for each channel.
func (e *Eraser) Fill(dst []byte, a Area, value []float32) {
	for c := range a.Channels {
		word := e.word(value[min(c, len(value)-1)], c)
		for y := a.Min.Y; y < a.Max.Y; y++ {
			at, step := e.line(&a, y, c)
			for range a.Dx() {
				e.put(dst, at, word)
				at += step
			}
		}
	}
}

// Copy sets an area of a packed tensor to values, in the order of channels, rows and columns.
func (e *Eraser) Copy(dst []byte, a Area, values []float32) {
	for c := range a.Channels {
		for y := a.Min.Y; y < a.Max.Y; y++ {
			at, step := e.line(&a, y, c)
			line := values[:a.Dx()]
			values = values[a.Dx():]
			if e.as {
				for _, x := range line {
					binary.LittleEndian.PutUint32(dst[4*at:], math.Float32bits(x))
					at += step
				}
				continue
			}
			for _, x := range line {
				e.put(dst, at, e.word(x, c))
				at += step
			}
		}
	}
}

// line returns the place of the area's first element in a row, and the distance to the next one.
func (e *Eraser) line(a *Area, y, c int) (at, step int) {
	if e.target.Layout == CHW {
		return (c*a.Height+y)*a.Width + a.Min.X, 1
	}
	return (y*a.Width+a.Min.X)*a.Channels + c, a.Channels
}

// put writes an element.
func (e *Eraser) put(dst []byte, i int, word uint32) {
	switch e.target.Type {
	case Float32:
		binary.LittleEndian.PutUint32(dst[4*i:], word)
	case Uint8:
		dst[i] = byte(word)
	default:
		binary.LittleEndian.PutUint16(dst[2*i:], uint16(word))
	}
}

// word returns the bits of a value in the packed tensor.
func (e *Eraser) word(x float32, c int) uint32 {
	if e.at.Type == Uint8 {
		return e.target.word(float32(byte(int(x))), c)
	}
	rest := e.target
	rest.Scale = Levels // numbers are scaled already
	if len(e.at.Mean) > 0 {
		rest.Mean, rest.Std = nil, nil
	}
	if e.at.Arithmetic != Uint8 {
		rest.Arithmetic = Uint8 // rounded already, and normalized if they are to be
	}
	return rest.word(e.at.Type.round(x), c)
}

// FromBFloat16 converts a bfloat16 to a float32.
func FromBFloat16(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }

// FromFloat16 converts an IEEE half to a float32.
func FromFloat16(b uint16) float32 {
	exponent, fraction := int(b>>10&31), float64(b&1023)/1024
	v := math.Ldexp(1+fraction, exponent-15)
	switch exponent {
	case 0:
		v = math.Ldexp(fraction, -14)
	case 31:
		v = math.Inf(1)
	}
	if b>>15 != 0 {
		v = -v
	}
	return float32(v)
}
