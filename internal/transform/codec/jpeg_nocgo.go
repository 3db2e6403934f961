//go:build !cgo

package codec

import (
	"image"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// jpegDecoder has no state without cgo.
type jpegDecoder struct{}

func (*jpegDecoder) close() {}

func (d *Decoder) decodeJPEG(
	dst *pixels.Image, src []byte, h *Header, want Want, _ image.Rectangle,
) (image.Point, error) {
	return image.Point{}, guarded(h, dst, func() error { return decodeJPEGGo(dst, src, h, want) })
}
