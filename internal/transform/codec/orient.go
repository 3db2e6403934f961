package codec

import (
	"image"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// EXIF orientations, with the equivalent operations of PIL.
const (
	mirrored   = 2 // FLIP_LEFT_RIGHT
	halfTurned = 3 // ROTATE_180
	flipped    = 4 // FLIP_TOP_BOTTOM
	transposed = 5 // TRANSPOSE
	turnRight  = 6 // ROTATE_270, which in PIL is a quarter turn clockwise
	transverse = 7 // TRANSVERSE
	turnLeft   = 8 // ROTATE_90
)

// oriented returns the position of part r of a stored width x height image after applying the
// orientation.
func oriented(r image.Rectangle, orientation, width, height int) image.Rectangle {
	if orientation == mirrored || orientation == halfTurned || orientation == transverse ||
		orientation == turnLeft {
		r.Min.X, r.Max.X = width-r.Max.X, width-r.Min.X
	}
	if orientation == halfTurned || orientation == flipped || orientation == turnRight ||
		orientation == transverse {
		r.Min.Y, r.Max.Y = height-r.Max.Y, height-r.Min.Y
	}
	if orientation >= transposed {
		return image.Rect(r.Min.Y, r.Min.X, r.Max.Y, r.Max.X)
	}
	return r
}

// stored is the inverse of oriented: width and height are those of the stored image in both.
func stored(r image.Rectangle, orientation, width, height int) image.Rectangle {
	if orientation >= transposed {
		r = image.Rect(r.Min.Y, r.Min.X, r.Max.Y, r.Max.X)
		// After transposing, what remains is one of the orientations below 5.
		orientation = [...]int{1, flipped, halfTurned, mirrored}[orientation-transposed]
	}
	return oriented(r, orientation, width, height)
}

// orient sets dst to src with the orientation applied.
func orient(dst, src *pixels.Image, orientation int) {
	n := src.Channels
	if orientation >= transposed {
		dst.Reset(src.Height, src.Width, n)
	} else {
		dst.Reset(src.Width, src.Height, n)
	}
	for y := range src.Height {
		at := oriented(image.Rect(0, y, 1, y+1), orientation, src.Width, src.Height).Min
		next := oriented(image.Rect(1, y, 2, y+1), orientation, src.Width, src.Height).Min
		to := at.Y*dst.Stride + at.X*n
		step := next.Y*dst.Stride + next.X*n - to
		row := src.Row(y)
		for x := 0; x < len(row); x += n {
			copy(dst.Pix[to:to+n], row[x:x+n])
			to += step
		}
	}
}
