// Package targets moves what belongs to an image as the image moves: masks, whose pixels are
// numbers of classes, and boxes around objects. Results are those of torchvision's v2 for
// tv_tensors.Mask and tv_tensors.BoundingBoxes, or, of masks, of its v1 for a second PIL image.
//
// A Set follows one sample: it is given each crop, flip, resize and pad of the image, in order.
// Pixels of masks are gathered once, at the end: every such move maps columns to columns and rows
// to rows. Boxes are computed at each move, in float32 as torch does. A Set reuses its memory, and
// is not safe for concurrent use. Which moves are drawn, and decoding, is not part of this package.
package targets

import (
	"fmt"
	"image"
	"math"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// Set is the masks and boxes of a sample. All methods but Begin may be called on nil, for a sample
// that has only an image.
type Set struct {
	// PIL samples masks as PIL's nearest does, and not as torch's.
	PIL           bool
	Boxes         *Boxes // nil: the sample has none
	width, height int    // of the image
	columns, rows axis
	fills         []int // by number
}

// An axis has, for each column (or row) of the result, the one of the mask that it shows; or -1-k
// for the fill of number k. Where a column and a row are fills, the later one counts.
type axis struct{ at, spare []int }

// Begin starts a sample whose image and masks have this size. Boxes may be set after it.
func (s *Set) Begin(width, height int) {
	s.width, s.height = width, height
	s.Boxes = nil
	s.columns.whole(width)
	s.rows.whole(height)
	s.fills = s.fills[:0]
}

// Size returns the size of the image as it is now.
func (s *Set) Size() (width, height int) { return s.width, s.height }

func (a *axis) whole(n int) {
	a.at = a.at[:0]
	for i := range n {
		a.at = append(a.at, i)
	}
}

// pick makes the axis show, at each place, what it showed at the place that of returns, or what of
// returns if that is negative.
func (a *axis) pick(n int, of func(i int) int) {
	a.spare = a.spare[:0]
	for i := range n {
		at := of(i)
		if at >= 0 {
			at = a.at[at]
		}
		a.spare = append(a.spare, at)
	}
	a.at, a.spare = a.spare, a.at
}

// Flip mirrors all.
func (s *Set) Flip(vertical bool) {
	if s == nil {
		return
	}
	a := &s.columns
	if vertical {
		a = &s.rows
	}
	n := len(a.at)
	a.pick(n, func(i int) int { return n - 1 - i })
	s.Boxes.flip(vertical, s.width, s.height)
}

// Crop keeps a rectangle, which may reach outside: masks have 0 there.
func (s *Set) Crop(r image.Rectangle) { s.CropApart(r, r) }

// CropApart is Crop of masks by r, and of boxes as if it began at another point: torchvision's
// CenterCrop of an image that is smaller rounds differently for the two.
func (s *Set) CropApart(r, boxes image.Rectangle) {
	if s == nil {
		return
	}
	s.cut(r, pixels.Border{}, 0)
	s.Boxes.shift(-boxes.Min.X, -boxes.Min.Y, s.width, s.height)
}

// Pad keeps a rectangle that reaches outside, where masks have fill, or what mode says, as
// pixels.Border's.
func (s *Set) Pad(r image.Rectangle, mode string, fill int) error {
	if s == nil {
		return nil
	}
	if s.Boxes != nil && mode != "constant" {
		return fmt.Errorf("padding_mode %q is not for boxes: torchvision pads them with constant only",
			mode)
	}
	b := pixels.Border{Mode: mode}
	if b.Mirrors() {
		outside := max(-r.Min.X, r.Max.X-s.width)
		down := max(-r.Min.Y, r.Max.Y-s.height)
		most := 0 // what reflect does not have: the outermost pixel
		if mode == "reflect" {
			most = 1
		}
		if !s.PIL && (outside > s.width-most || down > s.height-most) {
			return fmt.Errorf("padding_mode %q of more than the image of %d x %d pixels has, which "+
				"torchvision refuses for masks", mode, s.width, s.height)
		}
	}
	s.cut(r, b, fill)
	s.Boxes.shift(-r.Min.X, -r.Min.Y, s.width, s.height)
	return nil
}

// cut keeps a rectangle, outside of which is the border, or fill.
func (s *Set) cut(r image.Rectangle, b pixels.Border, fill int) {
	s.fills = append(s.fills, fill)
	s.columns.cut(r.Min.X, r.Max.X, s.width, b, len(s.fills)-1)
	s.rows.cut(r.Min.Y, r.Max.Y, s.height, b, len(s.fills)-1)
	s.width, s.height = r.Dx(), r.Dy()
}

// cut keeps what lies between from and to; outside of n places is the border.
func (a *axis) cut(from, to, n int, b pixels.Border, fill int) {
	a.pick(to-from, func(i int) int {
		if at := b.Place(from+i, n); at >= 0 {
			return at
		}
		return -1 - fill
	})
}

// Resize resizes all: masks by the nearest pixel.
func (s *Set) Resize(width, height int) {
	if s == nil || s.width == width && s.height == height {
		return
	}
	s.columns.resize(width, s.PIL)
	s.rows.resize(height, s.PIL)
	s.Boxes.scale(float64(width)/float64(s.width), float64(height)/float64(s.height))
	s.width, s.height = width, height
}

// resize picks the nearest of the places. torch multiplies in float32; PIL takes the middle of each
// place, and adds up in float64, as its ImagingScaleAffine does.
func (a *axis) resize(n int, pil bool) {
	had := len(a.at)
	if pil {
		scale := float64(had) / float64(n)
		at := scale * 0.5
		a.pick(n, func(int) int {
			i := min(int(at), had-1)
			at += scale
			return i
		})
		return
	}
	scale := float32(had) / float32(n)
	a.pick(n, func(i int) int { return min(int(math.Floor(float64(float32(i)*scale))), had-1) })
}

// Need returns the part of a mask that is visible, at least one pixel.
func (s *Set) Need() image.Rectangle {
	left, right := s.columns.reach()
	top, bottom := s.rows.reach()
	return image.Rect(left, top, right, bottom)
}

func (a *axis) reach() (from, to int) {
	from, to = math.MaxInt, 0
	for _, at := range a.at {
		if at >= 0 {
			from, to = min(from, at), max(to, at+1)
		}
	}
	if to == 0 {
		return 0, 1
	}
	return from, to
}

// Mask writes a mask, of whose numbers mask has the part that begins at origin: one byte each, or
// two with the lower one first. dst has as many elements of the type as the image has pixels. most
// is the largest number that the mask may have, and what larger fills become.
func (s *Set) Mask(dst []byte, mask *pixels.Image, origin image.Point, t pixels.Type, most int) {
	size := t.Size()
	for y, row := range s.rows.at {
		to := dst[y*len(s.columns.at)*size:][:len(s.columns.at)*size]
		var from []byte
		if row >= 0 {
			from = mask.Row(row - origin.Y)
		}
		if size == 1 && mask.Channels == 1 {
			for x, column := range s.columns.at {
				if row < 0 || column < 0 {
					to[x] = byte(min(s.fill(row, column), most))
				} else {
					to[x] = from[column-origin.X]
				}
			}
			continue
		}
		for x, column := range s.columns.at {
			var v int
			switch {
			case row < 0 || column < 0:
				v = min(s.fill(row, column), most)
			case mask.Channels == 2:
				v = int(from[2*(column-origin.X)]) | int(from[2*(column-origin.X)+1])<<8
			default:
				v = int(from[column-origin.X])
			}
			t.Put(to[x*size:], v)
		}
	}
}

// fill returns the number where a row or a column, or both, are fills.
func (s *Set) fill(row, column int) int { return s.fills[-1-min(row, column)] }
