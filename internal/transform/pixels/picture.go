package pixels

import (
	"encoding/binary"
	"image"
	"math"
)

// Draw draws a tensor to a rectangle of a picture: it reverses what Pack did with the levels.
func (t *Target) Draw(picture *image.NRGBA, to image.Rectangle, tensor []byte, channels int) {
	width, height := to.Dx(), to.Dy()
	for y := range height {
		for x := range width {
			at := picture.Pix[picture.PixOffset(to.Min.X+x, to.Min.Y+y):][:4]
			for c := range 3 {
				from := min(c, channels-1)
				i := (y*width+x)*channels + from
				if t.Layout == CHW {
					i = (from*height+y)*width + x
				}
				at[c] = t.level(tensor, i, from)
			}
			at[3] = 255
		}
	}
}

// level returns the gray level from which element i, of this channel, was made.
func (t *Target) level(tensor []byte, i, channel int) byte {
	var v float32
	switch t.Type {
	case Uint8:
		return tensor[i]
	case Float16:
		v = FromFloat16(binary.LittleEndian.Uint16(tensor[2*i:]))
	case BFloat16:
		v = FromBFloat16(binary.LittleEndian.Uint16(tensor[2*i:]))
	default:
		v = math.Float32frombits(binary.LittleEndian.Uint32(tensor[4*i:]))
	}
	if n := len(t.Mean); n > 0 {
		c := min(channel, n-1)
		v = v*t.Std[c] + t.Mean[c]
	}
	if t.Scale != Levels {
		v *= 255
	}
	return byte(min(max(math.Round(float64(v)), 0), 255))
}
