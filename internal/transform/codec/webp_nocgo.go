//go:build !cgo

package codec

import (
	"image"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

func (d *Decoder) decodeWebP(
	dst *pixels.Image, src []byte, h *Header, want Want, _ image.Rectangle,
) (image.Point, error) {
	return image.Point{}, decodeWebPGo(dst, src, h, want)
}
