package codec

import (
	"bytes"
	"errors"
	"image/jpeg"
	"io"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// decodeJPEGGo decodes the whole image with image/jpeg, for builds without cgo. It differs from libjpeg-turbo in two
// ways: its inverse DCT rounds otherwise (by a few grey levels at most), and it does not interpolate subsampled
// chroma. It knows no arithmetic coding, and reduces by averaging where libjpeg scales the DCT.
func decodeJPEGGo(dst *pixels.Image, src []byte, h *Header, want Want) error {
	m, err := jpeg.Decode(bytes.NewReader(src))
	if err != nil {
		return fromGo(err)
	}
	if err := fromImage(dst, m, want.Gray); err != nil {
		return err
	}
	if n := 8 / want.Scale; n > 1 {
		average(dst, n)
	}
	return nil
}

// fromGo makes an error of Go's decoders one of ours.
func fromGo(err error) error {
	var unsupported jpeg.UnsupportedError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return fail(ErrTruncated, "%v", err)
	case errors.As(err, &unsupported):
		return fail(ErrUnsupported, "%v", err)
	}
	return fail(ErrCorrupt, "%v", err)
}

// average makes every n x n pixels one, in place; at the right and bottom fewer make one.
func average(m *pixels.Image, n int) {
	w, h := (m.Width+n-1)/n, (m.Height+n-1)/n
	to := 0
	for y := range h {
		for x := range w {
			for c := range m.Channels {
				sum, count := 0, 0
				for v := y * n; v < min((y+1)*n, m.Height); v++ {
					for u := x * n; u < min((x+1)*n, m.Width); u++ {
						sum += int(m.Pix[v*m.Stride+u*m.Channels+c])
						count++
					}
				}
				// Never behind what is still to be read: to is at most the first sample that was just summed.
				m.Pix[to] = byte((sum + count/2) / count)
				to++
			}
		}
	}
	*m = pixels.Image{Pix: m.Pix[:to], Width: w, Height: h, Channels: m.Channels, Stride: w * m.Channels}
}
