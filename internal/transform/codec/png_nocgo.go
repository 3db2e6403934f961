//go:build !cgo

package codec

import (
	"image"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// pngDecoder has no state without cgo.
type pngDecoder struct{}

func (*pngDecoder) close()      {}
func (*pngDecoder) trim() bool  { return false }
func (*pngDecoder) drop()       {}
func (*pngDecoder) kept() int64 { return 0 }

func (d *Decoder) decodePNG(
	dst *pixels.Image, src []byte, h *Header, want Want, _ image.Rectangle,
) (image.Point, error) {
	if err := pngHolds(src, h); err != nil {
		return image.Point{}, err
	}
	if err := d.take(goPNG(src, h)); err != nil {
		return image.Point{}, err
	}
	return image.Point{}, decodePNGGo(dst, src, h, want)
}
