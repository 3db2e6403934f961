package arrays

import (
	"fmt"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// Image describes samples that are the levels of images.
type Image struct {
	Width, Height, Channels int
	Planar                  bool // all levels of a channel lie together
}

// Of returns the image of the sample src: of planar ones in buffer, of others in src itself.
func (m *Image) Of(buffer *pixels.Image, src []byte) (pixels.Image, error) {
	plane := m.Width * m.Height
	if len(src) != plane*m.Channels {
		return pixels.Image{}, fmt.Errorf("the sample has %d bytes; %d x %d pixels of %d channels "+
			"have %d", len(src), m.Width, m.Height, m.Channels, plane*m.Channels)
	}
	if !m.Planar {
		return pixels.Image{
			Pix: src, Width: m.Width, Height: m.Height, Channels: m.Channels,
			Stride: m.Width * m.Channels,
		}, nil
	}
	buffer.Reset(m.Width, m.Height, m.Channels)
	for c := range m.Channels {
		for i, level := range src[c*plane : (c+1)*plane] {
			buffer.Pix[i*m.Channels+c] = level
		}
	}
	return *buffer, nil
}
