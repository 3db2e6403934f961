package codec

import (
	"bytes"
	"image"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// Decoded is an image file with its pixels, of which a region is copied instead of decoded. Package
// forms keeps it as bytes.
type Decoded struct {
	File []byte
	// Pixels are of the size in the file's Header, without padding. They have one channel if the
	// file's Header does, from which RGB follows, and else three.
	Pixels pixels.Image
}

// DecodeAll decodes all pixels of a PNG or a WebP into dst, as Decoded has them. It checks that all
// of the file is sound (Want.Whole), and that a WebP's pixels are the same if that is not checked.
//
// Images of other formats, and those whose Header is Odd, result in an Error of ErrNotPacked. Other
// errors are those of Decode.
func (d *Decoder) DecodeAll(dst *pixels.Image, src []byte) error {
	h, err := d.Header(src)
	switch {
	case err != nil:
		return err
	case h.Format == JPEG:
		return fail(ErrNotPacked, "a JPEG")
	case h.Odd: // it is left to PIL, which needs the file each time
		return fail(ErrNotPacked, "what the file says beside its pixels may make PIL refuse it")
	}
	if _, err := d.Decode(dst, src, Want{Gray: h.Channels == 1, Whole: true}); err != nil {
		return err
	}
	if h.Format != WebP {
		return nil
	}
	// libwebp finds the pixels in the file in another way then.
	if _, err := d.Decode(&d.scratch, src, Want{}); err != nil {
		return err
	}
	if !bytes.Equal(d.scratch.Pix, dst.Pix) {
		return fail(ErrNotPacked, "its pixels depend on how they are looked for")
	}
	return nil
}

// DecodeFrom decodes from as Decode does its file, bit for bit, if DecodeAll made its pixels. There
// is no damage for Want.Whole to find. Pixels of another size than the file says are an error of
// ErrCorrupt.
func (d *Decoder) DecodeFrom(dst *pixels.Image, from *Decoded, want Want) (image.Point, error) {
	d.taken = 0
	h, err := d.Header(from.File)
	if err != nil {
		return image.Point{}, err
	}
	if !from.fits(&h) {
		return image.Point{}, fail(ErrCorrupt, "%s", damagedForm)
	}
	want.decoded = &from.Pixels
	return d.decode(dst, from.File, &h, want)
}

// ViewOf returns the part of from's pixels that DecodeFrom would copy, in from's memory; ok is
// false if it would make others of them. want.Region must not be empty. Errors are DecodeFrom's.
func (d *Decoder) ViewOf(from *Decoded, want Want) (m pixels.Image, ok bool, err error) {
	h, err := d.Header(from.File)
	switch {
	case err != nil:
		return m, false, err
	case !from.fits(&h):
		return m, false, fail(ErrCorrupt, "%s", damagedForm)
	case want.Orient && h.Orientation != 1, want.Gray != (h.Channels == 1):
		return m, false, nil
	}
	return from.Pixels.Sub(want.Region), true, nil
}

// fits reports whether the pixels are what DecodeAll makes of a file with that header.
func (f *Decoded) fits(h *Header) bool {
	m := &f.Pixels
	channels := 3
	if h.Channels == 1 {
		channels = 1
	}
	return h.Format != JPEG && m.Width == h.Width && m.Height == h.Height &&
		m.Channels == channels && m.Stride == m.Width*channels && len(m.Pix) == m.Stride*m.Height
}

// copyDecoded copies a region of want.decoded, which has the size in h.
func (d *Decoder) copyDecoded(
	dst *pixels.Image, h *Header, want Want, region image.Rectangle,
) (image.Point, error) {
	channels := 3
	if want.Gray && want.decoded.Channels == 1 {
		channels = 1
	}
	if err := d.take(decoded(region, channels, h)); err != nil {
		return image.Point{}, err
	}
	part := want.decoded.Sub(region)
	dst.Reset(part.Width, part.Height, channels)
	for y := range part.Height {
		if part.Channels == 1 {
			expandGray(dst.Row(y), part.Row(y), channels)
		} else {
			copy(dst.Row(y), part.Row(y))
		}
	}
	if want.Gray {
		toGray(dst)
	}
	return region.Min, nil
}
