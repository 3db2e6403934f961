package transform

import (
	"errors"

	"github.com/hdmlp/hdmlp/internal/transform/left"
	"github.com/hdmlp/hdmlp/internal/transform/pixels"
	"github.com/hdmlp/hdmlp/internal/transform/policy"
)

// followMotion is follow for a step that moves pixels.
func followMotion(k *known, m policy.Motion) error {
	if !m.Fill.One && k.channels == 1 {
		return errors.New("fill has three numbers, and images have one channel")
	}
	return k.image()
}

// act applies an operation that a policy drew.
func (v *view) act(a *policy.Action) error {
	v.note(Param{a.Name, a.Amount})
	if a.Unsure && v.w.program.known.leaves() {
		return left.ErrRounding
	}
	m := policy.Motion{Filter: a.Filter, Fill: policy.Fill{Levels: a.Fill}}
	switch a.Kind {
	case policy.Move:
		return v.move(a.Matrix, m)
	case policy.Rotate:
		return v.rotate(a.Amount, false, nil, m)
	}
	return v.adjust(a.Kind, a.Amount)
}

// adjust applies an operation that does not move pixels.
func (v *view) adjust(kind policy.Kind, amount float64) error {
	switch kind {
	case policy.Sharpness:
		return v.redraw(func(e *pixels.Editor, dst, src *pixels.Image) {
			e.Sharpness(dst, src, float32(amount))
		})
	case policy.Blur:
		return v.redraw(func(e *pixels.Editor, dst, src *pixels.Image) {
			e.GaussianBlur(dst, src, float32(amount), float32(amount))
		})
	case policy.Nothing:
		return nil
	}
	m, err := v.pixels()
	if err == nil {
		v.change(m, kind, amount)
	}
	return err
}

// change applies an operation that changes each pixel of the image, m, in its place, and notes what
// is lost of it.
func (v *view) change(m *pixels.Image, kind policy.Kind, amount float64) {
	switch kind {
	case policy.Brightness, policy.Contrast:
		v.bare = true
	case policy.Color:
		v.grayed = true
	case policy.Gray:
		v.bare, v.grayed = v.bare || m.Channels == 3, v.grayed || m.Channels == 3
	case policy.Hue:
		v.bare = v.bare || m.Channels == 3
	}
	policy.Adjust(m, kind, amount)
}

// redraw makes an image of the same size out of the image.
func (v *view) redraw(draw func(e *pixels.Editor, dst, src *pixels.Image)) error {
	src, err := v.upright()
	if err != nil {
		return err
	}
	return v.redrawAs(src, src.Width, src.Height, draw)
}

// redrawAs makes an image of this size out of src, which is the image.
func (v *view) redrawAs(
	src *pixels.Image, width, height int, draw func(e *pixels.Editor, dst, src *pixels.Image),
) error {
	if err := v.w.spare(1-v.buffer, width, height, src.Channels); err != nil {
		return err
	}
	draw(&v.w.editor, v.spare(), src)
	v.become()
	v.w.resized = max(v.w.resized, v.w.editor.Kept())
	return v.w.take()
}

// upright computes the image with its mirroring, for a step whose result depends on the direction.
func (v *view) upright() (*pixels.Image, error) {
	m, err := v.pixels()
	if err == nil && v.mirror != 0 {
		pixels.Mirror(m, v.mirror)
		v.mirror = 0
	}
	return m, err
}

// rotate rotates the image counter-clockwise by an angle in degrees, as PIL's rotate.
func (v *view) rotate(angle float64, expand bool, center *[2]float64, m policy.Motion) error {
	src, err := v.upright()
	if err != nil {
		return err
	}
	width, height := src.Width, src.Height
	if expand {
		width, height = pixels.Rotated(width, height, angle, center)
	}
	return v.redrawAs(src, width, height, func(e *pixels.Editor, dst, src *pixels.Image) {
		e.Rotate(dst, src, angle, m.Filter, expand, center, m.Fill.Levels)
	})
}

// move is PIL's transform with AFFINE and these six numbers.
func (v *view) move(matrix [6]float64, m policy.Motion) error {
	return v.redraw(func(e *pixels.Editor, dst, src *pixels.Image) {
		e.Affine(dst, src, src.Width, src.Height, matrix, m.Filter, m.Fill.Levels)
	})
}
