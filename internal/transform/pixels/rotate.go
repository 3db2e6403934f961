package pixels

import (
	"math"
	"strconv"
	"unsafe"
)

// Rotate sets dst to src, rotated counter-clockwise by an angle in degrees, as PIL's rotate. dst
// has src's size, or with expand one that has room for all of it. center is the point to rotate
// around, nil for the middle.
func (e *Editor) Rotate(
	dst, src *Image, angle float64, filter Filter, expand bool, center *[2]float64, fill [3]byte,
) {
	angle = turned(angle)
	switch n := quarterTurns(angle, src.Width, src.Height, expand, center); {
	case n == 0:
		src.CopyTo(dst)
		return
	case n > 0:
		quarters(dst, src, n)
		return
	}
	width := src.Width
	height := src.Height
	m := rotation(angle, width, height, center)
	if expand {
		width, height = expanded(&m, width, height)
	}
	e.Affine(dst, src, width, height, m, filter, fill)
}

// Rotated returns the size of an image that Rotate makes of one of this size with expand.
func Rotated(width, height int, angle float64, center *[2]float64) (w, h int) {
	angle = turned(angle)
	switch n := quarterTurns(angle, width, height, true, center); {
	case n >= 0 && n%2 == 0:
		return width, height
	case n > 0:
		return height, width
	}
	m := rotation(angle, width, height, center)
	return expanded(&m, width, height)
}

// turned returns an angle as one from 0 to 360 degrees.
func turned(angle float64) float64 {
	angle = math.Mod(angle, 360)
	if angle < 0 {
		angle += 360
	}
	return angle
}

// quarterTurns returns by how many quarters PIL turns an image without computing pixels; -1: it
// computes them.
func quarterTurns(angle float64, width, height int, expand bool, center *[2]float64) int {
	switch {
	case center != nil:
	case angle == 0 || angle == 180:
		return int(angle) / 90
	case (angle == 90 || angle == 270) && (expand || width == height):
		return int(angle) / 90
	}
	return -1
}

// rotation returns the affine matrix of a rotation, with the operations of PIL's rotate.
func rotation(angle float64, width, height int, center *[2]float64) (m [6]float64) {
	x := float64(width) / 2
	y := float64(height) / 2
	if center != nil {
		x, y = center[0], center[1]
	}
	sin, cos := SinCos(-(angle * (math.Pi / 180)))
	m[0] = rounded(cos)
	m[1] = rounded(sin)
	m[3] = rounded(-sin)
	m[4] = m[0]
	m[2], m[5] = mapped(&m, -x, -y)
	m[2] += x
	m[5] += y
	return m
}

// expanded returns the size that has room for a rotated image, and moves the matrix to its middle.
func expanded(m *[6]float64, width, height int) (w, h int) {
	left, top := math.Inf(1), math.Inf(1)
	right, bottom := math.Inf(-1), math.Inf(-1)
	for corner := range 4 {
		x, y := mapped(m, float64(corner&1*width), float64(corner>>1*height))
		left, right = min(left, x), max(right, x)
		top, bottom = min(top, y), max(bottom, y)
	}
	w = int(math.Ceil(right) - math.Floor(left))
	h = int(math.Ceil(bottom) - math.Floor(top))
	m[2], m[5] = mapped(m, -float64(w-width)/2, -float64(h-height)/2)
	return w, h
}

// mapped returns the point that a matrix maps to.
func mapped(m *[6]float64, x, y float64) (u, v float64) {
	return float64(m[0]*x) + float64(m[1]*y) + m[2], float64(m[3]*x) + float64(m[4]*y) + m[5]
}

// rounded rounds to 15 decimals, as Python's round.
func rounded(v float64) float64 {
	var text [32]byte
	b := strconv.AppendFloat(text[:0], v, 'f', 15, 64)
	r, err := strconv.ParseFloat(unsafe.String(unsafe.SliceData(b), len(b)), 64)
	if err != nil {
		return v // not a number, or infinite
	}
	return r
}
