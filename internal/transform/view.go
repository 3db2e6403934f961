package transform

import (
	"errors"
	"fmt"
	"image"

	"github.com/hdmlp/hdmlp/internal/transform/codec"
	"github.com/hdmlp/hdmlp/internal/transform/forms"
	"github.com/hdmlp/hdmlp/internal/transform/pixels"
	"github.com/hdmlp/hdmlp/internal/transform/targets"
)

// A view is an image that has not been computed yet: box, a part of the source, is resized; window
// of the result is kept, and mirrored. Crops, resizes and flips only change these parameters;
// pixels are computed when a step needs them, and at the end.
//
// The source is the encoded sample at first, so that only what box and window require is decoded;
// after that it is the image that the last computation left in one of the worker's two buffers.
type view struct {
	w      *Worker
	sample []byte // encoded; nil after it was decoded
	width  int    // of the encoded image, oriented
	height int
	format codec.Format
	source pixels.Image // after decoding
	shared bool         // source belongs to other views as well, and must not change
	buffer int          // index of the worker's buffer that holds source, unless it is shared
	box    image.Rectangle
	scaled bool // box is resized to full, of which window is kept
	// the part of box that remains after decoding at a smaller size cuts pixels; used while
	// computing
	part    pixels.Part
	full    image.Point
	window  image.Rectangle
	filter  pixels.Filter
	order   pixels.Order
	resizer int // the step that resizing is charged to
	mirror  pixels.Flip
	// bare records that a step made a new image, which in PIL has nothing beside its pixels, and
	// grayed that PIL converted it to gray, and with it a transparent colour.
	bare, grayed bool
	// targets are the masks and boxes that move with the image; nil: there are none. hollow: there is
	// no image, and the view has only a size.
	targets *targets.Set
	hollow  bool
}

// size returns the image's width and height.
func (v *view) size() (width, height int) {
	if v.scaled {
		return v.window.Dx(), v.window.Dy()
	}
	return v.box.Dx(), v.box.Dy()
}

// unflipped returns the position of a rectangle of the image before mirroring.
func (v *view) unflipped(r image.Rectangle) image.Rectangle {
	width, height := v.size()
	if v.mirror&pixels.FlipHorizontal != 0 {
		r.Min.X, r.Max.X = width-r.Max.X, width-r.Min.X
	}
	if v.mirror&pixels.FlipVertical != 0 {
		r.Min.Y, r.Max.Y = height-r.Max.Y, height-r.Min.Y
	}
	return r
}

// crop keeps r, which must be non-empty and inside the image.
func (v *view) crop(r image.Rectangle) { v.cut(v.unflipped(r)) }

// cut is like crop, in coordinates before mirroring.
func (v *view) cut(r image.Rectangle) {
	if v.scaled {
		v.window = r.Add(v.window.Min)
	} else {
		v.box = r.Add(v.box.Min)
	}
}

// flip mirrors the image.
func (v *view) flip(vertical bool) {
	v.targets.Flip(vertical)
	if vertical {
		v.mirror ^= pixels.FlipVertical
	} else {
		v.mirror ^= pixels.FlipHorizontal
	}
}

// resize resizes the image to width x height, as PIL does.
func (v *view) resize(width, height int, f pixels.Filter, o pixels.Order) error {
	v.targets.Resize(width, height)
	if w, h := v.size(); w == width && h == height {
		return nil
	}
	if v.hollow {
		v.box, v.mirror = image.Rect(0, 0, width, height), 0
		return nil
	}
	if v.scaled {
		if err := v.compute(); err != nil {
			return err
		}
	}
	// Resizing and mirroring commute, except for filters that have to decide which of two pixels is
	// nearer.
	if v.mirror != 0 && (f == pixels.Nearest || f == pixels.Box) {
		if _, err := v.upright(); err != nil {
			return err
		}
	}
	v.scaled = true
	v.full = image.Pt(width, height)
	v.filter = f
	v.order = o
	v.resizer = v.w.step
	v.window = image.Rectangle{Max: v.full}
	return nil
}

// pixels computes the image except for its mirroring, for a step that changes the pixels. The step
// may do that in place.
func (v *view) pixels() (*pixels.Image, error) {
	err := v.compute()
	if err == nil && v.shared {
		err = v.own()
	}
	return &v.source, err
}

// spare returns the buffer that does not hold source. become makes its contents the image.
func (v *view) spare() *pixels.Image { return &v.w.buffers[1-v.buffer] }

// become makes the contents of the spare buffer the image.
func (v *view) become() {
	v.buffer = 1 - v.buffer
	v.shared = false
	v.source = v.w.buffers[v.buffer]
	v.box, v.scaled = v.source.Bounds(), false
}

// most returns how many pixels an image may have after any transform.
func (v *view) most() int64 { return max(v.w.program.known.most, codec.MaxPixels) }

// compute computes the pixels that box and window describe.
func (v *view) compute() error {
	if w, h := v.size(); int64(w)*int64(h) > v.most() {
		return fmt.Errorf("an image of %d x %d pixels is too large; the limit is %d pixels", w, h,
			v.most())
	}
	v.part = pixels.Part{Width: float64(v.box.Dx()), Height: float64(v.box.Dy())}
	need := v.need()
	if v.sample == nil {
		if err := v.takeResize(need, v.source.Channels); err != nil {
			return err
		}
		v.source = v.source.Sub(need)
	} else {
		var err error
		if need, err = v.decode(); err != nil {
			return err
		}
	}
	if v.scaled {
		v.w.lap(v.w.step)
		v.w.resizer.Order = v.order
		v.w.resizer.ResizeBox(v.spare(), &v.source, need.Min.Sub(v.box.Min), v.box.Dx(), v.box.Dy(),
			v.part, v.full.X, v.full.Y, v.window, v.filter)
		v.become()
		v.w.lap(v.resizer)
	}
	v.box = v.source.Bounds()
	return nil
}

// takeResize records the memory for resizing that part of the source, if it is resized: the result,
// rows between two passes, and tables.
func (v *view) takeResize(need image.Rectangle, channels int) error {
	if !v.scaled {
		return nil
	}
	const perEdge = 128 // weights, of twice what a filter reaches, and rows for the kernels
	w := v.w
	between := max(int64(v.window.Dx())*int64(need.Dy()),
		int64(need.Dx())*int64(v.window.Dy())) * int64(channels)
	edges := int64(need.Dx() + need.Dy() + v.window.Dx() + v.window.Dy())
	w.resized = max(w.resized, between+perEdge*edges)
	return w.spare(1-v.buffer, v.window.Dx(), v.window.Dy(), channels)
}

// need returns the part of the source that is read.
func (v *view) need() image.Rectangle {
	if !v.scaled {
		return v.box
	}
	return pixels.SupportBox(v.box.Dx(), v.box.Dy(), v.part, v.full.X, v.full.Y, v.window,
		v.filter).Add(v.box.Min)
}

// decode decodes the part of the sample that is needed, and returns that part. If it decodes the
// sample at a reduced size, it converts box to that size.
func (v *view) decode() (need image.Rectangle, err error) {
	v.w.lap(v.w.step)
	k := &v.w.program.known
	want := codec.Want{Gray: k.gray, Orient: k.orient, Scale: v.eighths(), Whole: v.w.whole}
	if want.Scale < 8 {
		v.reduce(want.Scale)
	}
	want.Region = v.need()
	v.buffer = 0
	channels := 3
	if k.gray {
		channels = 1
	}
	if err := v.takeResize(want.Region, channels); err != nil {
		return want.Region, err
	}
	beside := v.w.resized + v.w.spared[0] + v.w.spared[1]
	if v.w.memory > 0 {
		v.w.decoder.Memory = v.w.memory - beside // at least 1, or takeResize had refused
	}
	m, shared, err := forms.Region(&v.w.decoder, &v.w.buffers[0], v.sample, v.w.form, want)
	v.w.lap(0)
	if err != nil {
		if e := (*MemoryError)(nil); errors.As(err, &e) {
			e.Need += beside
		}
		return want.Region, err
	}
	if !shared {
		v.w.taken = v.w.decoder.Taken()
	}
	v.source, v.shared = m, shared // what lies in the sample must not change
	v.sample = nil
	return want.Region, nil
}

// eighths returns the size, in eighths, at which the sample is decoded: the smallest that leaves
// box sufficiently larger than its resized size.
func (v *view) eighths() int {
	if !v.w.program.known.fast || v.format != codec.JPEG || !v.scaled || v.filter == pixels.Nearest {
		return 8
	}
	return codec.Eighths(v.box.Size(), v.full)
}

// reduce converts box to a size of n eighths. Its edges may fall inside pixels of that size, which
// part records.
func (v *view) reduce(n int) {
	down := func(x int) (pixel int, fraction float64) { return x * n / 8, float64(x*n%8) / 8 }
	r := v.box
	v.part.Width, v.part.Height = float64(r.Dx()*n)/8, float64(r.Dy()*n)/8
	v.box.Min.X, v.part.X = down(r.Min.X)
	v.box.Min.Y, v.part.Y = down(r.Min.Y)
	v.box.Max.X, v.box.Max.Y = codec.ScaledSize(codec.JPEG, r.Max.X, r.Max.Y, n)
}

// extend crops to a rectangle that may reach outside the image; b determines the pixels there.
func (v *view) extend(r image.Rectangle, b border) error {
	width, height := v.size()
	bounds := image.Rect(0, 0, width, height)
	if r.In(bounds) {
		v.crop(r)
		return nil
	}
	v.bare = true
	if v.hollow {
		v.box, v.mirror = image.Rect(0, 0, r.Dx(), r.Dy()), 0
		return nil
	}
	if int64(r.Dx())*int64(r.Dy()) > v.most() {
		return fmt.Errorf("an image of %d x %d pixels is too large; the limit is %d pixels", r.Dx(),
			r.Dy(), v.most())
	}
	r = v.unflipped(r)
	if !b.Mirrors() { // only the visible part, and at least the pixels next to it
		inner := image.Rect(
			min(max(r.Min.X, 0), width-1), min(max(r.Min.Y, 0), height-1),
			min(max(r.Max.X, 1), width), min(max(r.Max.Y, 1), height))
		v.cut(inner)
		r = r.Sub(inner.Min)
	}
	if err := v.compute(); err != nil {
		return err
	}
	src := &v.source
	if err := v.w.spare(1-v.buffer, r.Dx(), r.Dy(), src.Channels); err != nil {
		return err
	}
	dst := v.spare()
	dst.Reset(r.Dx(), r.Dy(), src.Channels)
	v.w.extender.Extend(dst, src, r.Min, b.Border)
	v.become()
	return nil
}

// note records what a step decided, if the worker is recording.
func (v *view) note(params ...Param) {
	if v.w.recording {
		v.w.drawn = append(v.w.drawn,
			Drawn{Step: v.w.step, Params: append([]Param(nil), params...)})
	}
}
