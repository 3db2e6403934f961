package codec

import (
	"bytes"
	"errors"
	"image"
	"image/jpeg"
	"io"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// decodeJPEGGo decodes the whole image with image/jpeg, for builds without cgo. Its inverse DCT
// rounds differently from libjpeg-turbo's, so samples differ by up to 4 (mean below 0.1). It
// refuses corrupt data, which libjpeg decodes as far as possible, arithmetic coding and rare kinds
// of subsampling. It reduces by averaging, where libjpeg scales the DCT.
func decodeJPEGGo(dst *pixels.Image, src []byte, h *Header, want Want) error {
	m, err := jpeg.Decode(bytes.NewReader(src))
	if err != nil {
		return fromGo(err)
	}
	if planes, ok := m.(*image.YCbCr); ok {
		fromYCbCr(dst, planes)
		if want.Gray {
			toGray(dst)
		}
	} else if err := fromImage(dst, m, want.Gray); err != nil {
		return err
	}
	if n := 8 / want.Scale; n > 1 {
		average(dst, n)
	}
	return nil
}

// fromYCbCr converts planes as libjpeg-turbo does: chroma that is subsampled by 2 is interpolated
// ("fancy upsampling", jdsample.c), other chroma is repeated.
func fromYCbCr(dst *pixels.Image, m *image.YCbCr) {
	w, h := m.Rect.Dx(), m.Rect.Dy()
	dst.Reset(w, h, 3)
	across, down := 1, 1
	switch m.SubsampleRatio {
	case image.YCbCrSubsampleRatio422:
		across = 2
	case image.YCbCrSubsampleRatio440:
		down = 2
	case image.YCbCrSubsampleRatio420:
		across, down = 2, 2
	}
	columns, rows := (w+across-1)/across, (h+down-1)/down
	fancy := across == 1 && down == 2 || across == 2 && columns > 2
	for y := range h {
		row := dst.Row(y)
		near := y / down
		far := near
		if down == 2 {
			far = min(max(near-1+y%2*2, 0), rows-1)
		}
		for x := range w {
			var cb, cr byte
			if fancy {
				cb = interpolated(m.Cb[near*m.CStride:], m.Cb[far*m.CStride:], x, y, across, down,
					columns)
				cr = interpolated(m.Cr[near*m.CStride:], m.Cr[far*m.CStride:], x, y, across, down,
					columns)
			} else {
				at := m.COffset(m.Rect.Min.X+x, m.Rect.Min.Y+y)
				cb, cr = m.Cb[at], m.Cr[at]
			}
			row[3*x], row[3*x+1], row[3*x+2] = yccToRGB(m.Y[y*m.YStride+x], cb, cr)
		}
	}
}

// interpolated returns the chroma of pixel x, y: 3 parts of the nearest sample and 1 of the next,
// along each subsampled axis, with libjpeg's alternating rounding.
func interpolated(near, far []byte, x, y, across, down, columns int) byte {
	side, beside := x, x
	if across == 2 {
		side = x / 2
		beside = min(max(side-1+x%2*2, 0), columns-1)
	}
	switch {
	case down == 1:
		return byte((3*int(near[side]) + int(near[beside]) + 1 + x%2) >> 2)
	case across == 1:
		return byte((3*int(near[x]) + int(far[x]) + 1 + y%2) >> 2)
	}
	sum := func(i int) int { return 3*int(near[i]) + int(far[i]) }
	return byte((3*sum(side) + sum(beside) + 8 - x%2) >> 4)
}

// fromGo converts an error of Go's decoders to an Error.
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

// average replaces every n x n pixels by their average, in place; at the right and bottom edges
// fewer pixels.
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
				// This does not overwrite unread samples: to is at most the first sample just
				// summed.
				m.Pix[to] = byte((sum + count/2) / count)
				to++
			}
		}
	}
	*m = pixels.Image{
		Pix:      m.Pix[:to],
		Width:    w,
		Height:   h,
		Channels: m.Channels,
		Stride:   w * m.Channels,
	}
}
