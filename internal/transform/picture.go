package transform

import (
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"math"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// Picture converts a result of Worker.Apply back into an image for display: it reverses Normalize
// and converts numbers from 0 to 1 to levels. Views lie side by side. It returns an error for
// arrays and ragged images, and if sample has the wrong length.
func (p *Program) Picture(sample []byte) (*image.NRGBA, error) {
	if p.known.stage == raw {
		return nil, errors.New("an array cannot be shown as a picture")
	}
	if p.Ragged() {
		return nil, errors.New("a ragged image has no fixed size")
	}
	if len(sample) != p.bytes {
		return nil, fmt.Errorf("a sample has %d bytes, not %d", p.bytes, len(sample))
	}
	shown := []known{p.known}
	if p.Views() {
		shown = p.known.views
	}
	width, height := 0, 0
	for i := range shown {
		width += shown[i].width
		height = max(height, shown[i].height)
	}
	picture := image.NewNRGBA(image.Rect(0, 0, width, height))
	left := 0
	for i := range shown {
		k := &shown[i]
		k.draw(picture, left, sample)
		left += k.width
		sample = sample[k.output().Bytes():]
	}
	return picture, nil
}

// draw draws a sample from this column of a picture on.
func (k *known) draw(picture *image.NRGBA, left int, sample []byte) {
	for y := range k.height {
		for x := range k.width {
			at := picture.Pix[picture.PixOffset(left+x, y):][:4]
			for c := range 3 {
				from := min(c, k.channels-1)
				i := (y*k.width+x)*k.channels + from
				if k.target.Layout == pixels.CHW {
					i = (from*k.height+y)*k.width + x
				}
				at[c] = k.level(sample, i, from)
			}
			at[3] = 255
		}
	}
}

// level returns the gray level from which element i, of this channel, was made.
func (k *known) level(sample []byte, i, channel int) byte {
	t := &k.target
	var v float32
	switch t.Type {
	case pixels.Uint8:
		return sample[i]
	case pixels.Float16:
		v = pixels.FromFloat16(binary.LittleEndian.Uint16(sample[2*i:]))
	case pixels.BFloat16:
		v = pixels.FromBFloat16(binary.LittleEndian.Uint16(sample[2*i:]))
	default:
		v = math.Float32frombits(binary.LittleEndian.Uint32(sample[4*i:]))
	}
	if n := len(t.Mean); n > 0 {
		c := min(channel, n-1)
		v = v*t.Std[c] + t.Mean[c]
	}
	return byte(min(max(math.Round(float64(v)*255), 0), 255))
}
