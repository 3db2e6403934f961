//go:build !cgo

package codec

import (
	"image"
	"slices"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// jpegDecoder has no state without cgo.
type jpegDecoder struct{}

func (*jpegDecoder) close() {}

func (d *Decoder) decodeJPEG(
	dst *pixels.Image, src []byte, h *Header, want Want, _ image.Rectangle,
) (image.Point, error) {
	if err := d.take(goJPEG(h)); err != nil {
		return image.Point{}, err
	}
	if want.packed != nil {
		scan, err := appendScanGo(slices.Clone(src), src, want.packed.Body, want.packed.Ones)
		if err != nil {
			return image.Point{}, err
		}
		src = append(scan, 0xff, markerEOI)
	}
	return image.Point{}, guarded(h, dst, func() error { return decodeJPEGGo(dst, src, h, want) })
}

// goJPEG returns how many bytes image/jpeg uses: planes, coefficients of 4 bytes for a progressive
// image, and a copy for inverting CMYK.
func goJPEG(h *Header) int64 {
	sample := int64(h.Channels)
	if h.Progressive {
		sample += 4 * int64(h.Channels)
	}
	if h.Channels != 1 {
		sample += 4
	}
	return int64(h.Width+16)*int64(h.Height+16)*sample + decoded(whole(h), 3, h)
}
