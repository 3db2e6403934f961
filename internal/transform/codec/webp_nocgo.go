//go:build !cgo

package codec

import (
	"image"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

func (d *Decoder) decodeWebP(
	dst *pixels.Image, src []byte, h *Header, want Want, _ image.Rectangle,
) (image.Point, error) {
	if err := d.take(decoded(whole(h), 3+4, h) + webpBuffers(src, h)); err != nil {
		return image.Point{}, err
	}
	return image.Point{}, decodeWebPGo(dst, src, h, want)
}
