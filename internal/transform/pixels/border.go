package pixels

import "image"

// Border is what images have outside.
type Border struct {
	// Mode is as numpy.pad's: "constant" (Fill), "edge", "reflect" or "symmetric".
	Mode string
	Fill [3]byte
}

// Mirrors reports whether the border depends on more of the image than its outermost pixels.
func (b Border) Mirrors() bool { return b.Mode == "reflect" || b.Mode == "symmetric" }

// Extender extends images by borders. It reuses its memory.
type Extender struct{ columns, rows []int }

// Extend makes dst, which has its size, a part of src that begins at this point and may reach
// outside.
func (e *Extender) Extend(dst, src *Image, from image.Point, b Border) {
	e.columns = b.places(e.columns[:0], from.X, from.X+dst.Width, src.Width)
	e.rows = b.places(e.rows[:0], from.Y, from.Y+dst.Height, src.Height)
	for y, from := range e.rows {
		if from < 0 {
			b.paint(dst.Row(y), src.Channels)
		} else {
			b.draw(dst.Row(y), src.Row(from), e.columns, src.Channels)
		}
	}
}

// places appends, for positions from..to-1 along an axis of n pixels, the pixel shown there, or -1
// for the fill.
func (b Border) places(list []int, from, to, n int) []int {
	for i := from; i < to; i++ {
		list = append(list, b.Place(i, n))
	}
	return list
}

// Place returns the pixel that is shown at position i along an axis of n pixels, or -1 for the
// fill.
func (b Border) Place(i, n int) int {
	switch {
	case i >= 0 && i < n:
		return i
	case b.Mode == "edge" || b.Mode == "reflect" && n == 1:
		return min(max(i, 0), n-1)
	case b.Mode == "reflect":
		period := 2 * (n - 1)
		at := (i%period + period) % period
		return min(at, period-at)
	case b.Mode == "symmetric":
		period := 2 * n
		at := (i%period + period) % period
		return min(at, period-1-at)
	}
	return -1
}

// paint fills a row with the fill colour.
func (b Border) paint(row []byte, channels int) {
	for i := range row {
		row[i] = b.Fill[i%channels]
	}
}

// draw fills a row with the pixels of src that columns lists.
func (b Border) draw(dst, src []byte, columns []int, channels int) {
	for x, from := range columns {
		to := dst[x*channels : (x+1)*channels]
		if from < 0 {
			copy(to, b.Fill[:])
		} else {
			copy(to, src[from*channels:(from+1)*channels])
		}
	}
}
