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
// and converts numbers from 0 to 1 to levels. It returns an error for arrays and ragged images, and
// if sample has the wrong length.
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
	width := p.known.width
	height := p.known.height
	channels := p.known.channels
	picture := image.NewNRGBA(image.Rect(0, 0, width, height))
	for y := range height {
		for x := range width {
			at := picture.Pix[picture.PixOffset(x, y):][:4]
			for c := range 3 {
				from := min(c, channels-1)
				i := (y*width+x)*channels + from
				if p.known.target.Layout == pixels.CHW {
					i = (from*height+y)*width + x
				}
				at[c] = p.level(sample, i, from)
			}
			at[3] = 255
		}
	}
	return picture, nil
}

// level returns the gray level from which element i, of this channel, was made.
func (p *Program) level(sample []byte, i, channel int) byte {
	t := &p.known.target
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
	if t.Scale != pixels.Levels {
		v *= 255
	}
	return byte(min(max(math.Round(float64(v)), 0), 255))
}
