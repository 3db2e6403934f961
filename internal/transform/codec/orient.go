package codec

import (
	"encoding/binary"
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

// exifOrientation returns the orientation from EXIF data (TIFF, starting with the byte order mark):
// tag 0x0112 of the first directory. It returns 1 if the tag is missing or invalid.
func exifOrientation(tiff []byte) int {
	var order binary.ByteOrder
	switch {
	case hasPrefix(tiff, 0, "II*\x00"):
		order = binary.LittleEndian
	case hasPrefix(tiff, 0, "MM\x00*"):
		order = binary.BigEndian
	default:
		return 1
	}
	if len(tiff) < 8 {
		return 1
	}
	at := int64(order.Uint32(tiff[4:]))
	if at+2 > int64(len(tiff)) {
		return 1
	}
	entries := int(order.Uint16(tiff[at:]))
	for at += 2; entries > 0 && at+12 <= int64(len(tiff)); entries, at = entries-1, at+12 {
		if order.Uint16(tiff[at:]) != 0x0112 {
			continue
		}
		const short, long = 3, 4
		value := 0
		switch order.Uint16(tiff[at+2:]) {
		case short:
			value = int(order.Uint16(tiff[at+8:]))
		case long:
			value = int(order.Uint32(tiff[at+8:]))
		}
		if order.Uint32(tiff[at+4:]) == 1 && 1 <= value && value <= 8 {
			return value
		}
		return 1
	}
	return 1
}
