package pixels

import (
	"fmt"
	"image"
)

// Resizer resizes images. It is not safe for concurrent use.
type Resizer struct {
	Order                Order // of the two passes
	horizontal, vertical axis
	columns              []int32 // Nearest: the source column of each target column
	rows                 []byte  // the rows between the two passes
	columnwise           Image   // the same, if the pass along columns comes first
	scratch              []byte  // scratch memory of the C kernels
	kernel               kernel  // for tests: a kernel other than the best
}

// Kept returns how many bytes the Resizer keeps between images, without small tables.
func (r *Resizer) Kept() int64 {
	return int64(cap(r.rows)) + int64(cap(r.columnwise.Pix)) + int64(cap(r.scratch))
}

// Order is the order of the two passes of a resize. The result depends on it, because samples are
// rounded between the passes.
type Order int

// Orders of passes.
const (
	AlongRows Order = iota // along rows first, as Pillow before release 13
	// along columns first if steep, as Pillow from release 13 on
	AsSteep
)

// steep reports whether an image's height shrinks, and by more than twice as many pixels as its
// width.
func steep(fullW, fullH, width, height int) bool {
	return fullH > height && fullH-height > 2*(fullW-width)
}

// Resize sets dst to the part window of src resized to width x height, bit for bit as PIL's
// src.resize((width, height), filter).crop(window). The window must be non-empty and inside the
// resized image; dst must not share pixels with src.
func (r *Resizer) Resize(dst, src *Image, width, height int, window image.Rectangle, f Filter) {
	r.ResizePart(dst, src, image.Point{}, src.Width, src.Height, width, height, window, f)
}

// ResizePart is like Resize, for an image of fullW x fullH of which src is a part that starts at
// origin and covers at least the rectangle that Support returns.
func (r *Resizer) ResizePart(
	dst, src *Image, origin image.Point, fullW, fullH, width, height int, window image.Rectangle,
	f Filter,
) {
	r.ResizeBox(dst, src, origin, fullW, fullH, Part{0, 0, float64(fullW), float64(fullH)}, width,
		height, window, f)
}

// Part is a part of an image, in pixels and fractions of pixels: the image or a crop, in the
// coordinates of an image decoded at a reduced size.
type Part struct{ X, Y, Width, Height float64 }

// ResizeBox is like ResizePart, for part b of the image, as PIL's src.resize((width, height),
// filter, box). Filter Nearest is allowed only if b is the whole image.
func (r *Resizer) ResizeBox(
	dst, src *Image, origin image.Point, fullW, fullH int, b Part, width, height int,
	window image.Rectangle, f Filter,
) {
	need := SupportBox(fullW, fullH, b, width, height, window, f)
	across, down := whole(fullW, b.X, b.Width), whole(fullH, b.Y, b.Height)
	if window.Empty() || !window.In(image.Rect(0, 0, width, height)) ||
		!need.Sub(origin).In(src.Bounds()) || f == Nearest && !(across && down) {
		panic(fmt.Sprintf("pixels: resize %dx%d, %v of it, to %dx%d %v, window %v: %v is needed, "+
			"and %v at %v is there",
			fullW, fullH, b, width, height, f, window, need, src.Bounds(), origin))
	}
	dst.Reset(window.Dx(), window.Dy(), src.Channels)
	part := src.Sub(need.Sub(origin))
	switch {
	case f == Nearest:
		r.nearest(dst, &part, need.Min, fullW, fullH, width, height, window)
	case across && down && fullW == width && fullH == height:
		part.CopyTo(dst)
	default:
		job := resample{dst: dst, src: &part, first: need.Min, rows: &r.rows, scratch: &r.scratch}
		if !across || fullW != width {
			r.horizontal.set(fullW, b.X, b.Width, width, window.Min.X, window.Max.X, f)
			job.horizontal = &r.horizontal
		}
		if !down || fullH != height {
			r.vertical.set(fullH, b.Y, b.Height, height, window.Min.Y, window.Max.Y, f)
			job.vertical = &r.vertical
		}
		if r.Order == AsSteep && job.horizontal != nil && job.vertical != nil &&
			steep(fullW, fullH, width, height) {
			r.columnwise.Reset(part.Width, dst.Height, part.Channels)
			down := job
			down.dst, down.horizontal = &r.columnwise, nil
			down.run(r.kernel)
			job.src, job.vertical = &r.columnwise, nil
		}
		job.run(r.kernel)
	}
}

// kernel selects an implementation.
type kernel int

// Kernels. From plain on they are the levels of kernels.h.
const (
	best kernel = iota
	inGo
	plain
)

// resample is one antialiased resize: first along rows, then along columns, rounding to 8 bits in
// between. An axis that keeps its size is nil and is not resampled.
type resample struct {
	dst, src             *Image
	first                image.Point // position of src in the full image
	horizontal, vertical *axis
	rows, scratch        *[]byte // memory for the rows between the passes, and for the kernels
}

// nearest is ResizePart for Nearest.
func (r *Resizer) nearest(
	dst, src *Image, first image.Point, fullW, fullH, width, height int, window image.Rectangle,
) {
	step := func(at *float64, scale float64) int {
		i := int(*at)
		*at += scale
		return i
	}
	r.columns = grow(r.columns, window.Dx())
	scale := float64(fullW) / float64(width)
	at := scale * 0.5
	for x := range window.Max.X {
		if column := min(step(&at, scale), fullW-1); x >= window.Min.X {
			r.columns[x-window.Min.X] = int32((column - first.X) * src.Channels)
		}
	}
	scale = float64(fullH) / float64(height)
	at = scale * 0.5
	for y := range window.Max.Y {
		row := min(step(&at, scale), fullH-1)
		if y < window.Min.Y {
			continue
		}
		to, from := dst.Row(y-window.Min.Y), src.Row(row-first.Y)
		for i, c := range r.columns {
			copy(to[i*src.Channels:(i+1)*src.Channels], from[c:])
		}
	}
}
