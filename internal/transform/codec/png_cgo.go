//go:build cgo

package codec

// libdeflate is linked statically, as libjpeg-turbo is.

/*
#cgo CFLAGS: -O3 -Wall
#cgo LDFLAGS: -l:libdeflate.a
#cgo noescape codec_png_decode
#cgo nocallback codec_png_decode
#include "png.h"
*/
import "C"

import (
	"image"
	"slices"
	"unsafe"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// pngDecoder is libdeflate's state, in C memory that is kept from image to image, and ours.
type pngDecoder struct {
	c       *C.codec_png
	request *C.codec_png_request
	packed  []byte // the zlib stream, where it lies in several chunks
	raw     []byte // what it holds: filtered rows
}

func (p *pngDecoder) close() {
	if p.c != nil {
		C.codec_png_free(p.c)
	}
	*p = pngDecoder{}
}

// decodePNG decodes the part region, in one call to C, or the whole image with Go's decoder: what is interlaced, and what is
// damaged, which Go's then says.
func (d *Decoder) decodePNG(
	dst *pixels.Image, src []byte, h *Header, want Want, region image.Rectangle,
) (image.Point, error) {
	if err := pngHolds(src, h); err != nil {
		return image.Point{}, err
	}
	if !d.png.decode(dst, src, h, want.Gray, region) {
		return image.Point{}, decodePNGGo(dst, src, h, want)
	}
	return region.Min, nil
}

// decode is decodePNG for the kinds of PNGs that png.c knows.
func (p *pngDecoder) decode(dst *pixels.Image, src []byte, h *Header, gray bool, region image.Rectangle) bool {
	layout, ok := layoutOf(src)
	if !ok || p.c == nil && !p.open() {
		return false
	}
	row := (h.Width*pngSamples[layout.colour]*layout.depth + 7) / 8
	n := row + (row+1)*h.Height + C.codec_png_slack
	p.raw = slices.Grow(p.raw[:0], n)[:n]
	clear(p.raw[:row])
	channels := 3
	if gray && h.Channels == 1 {
		channels = 1
	}
	dst.Reset(region.Dx(), region.Dy(), channels)
	r := p.request
	r.width, r.height, r.depth, r.colour = C.int(h.Width), C.int(h.Height), C.int(layout.depth), C.int(layout.colour)
	r.x, r.y, r.columns, r.rows = C.int(region.Min.X), C.int(region.Min.Y), C.int(region.Dx()), C.int(region.Dy())
	r.channels = C.int(channels)
	if layout.colour == pngPalette {
		colours := unsafe.Slice(&r.palette[0][0], len(r.palette)*3)
		for i := range colours {
			colours[i] = C.uint8_t(i / 3) // what PIL has beyond a palette's end
		}
		for i, v := range layout.palette {
			colours[i] = C.uint8_t(v)
		}
	}
	packed := p.stream(src, layout.pixels)
	ok = C.codec_png_decode(
		p.c, (*C.uint8_t)(unsafe.SliceData(packed)), C.size_t(len(packed)),
		(*C.uint8_t)(unsafe.SliceData(p.raw)), C.size_t(row),
		(*C.uint8_t)(unsafe.SliceData(dst.Pix)), C.size_t(dst.Stride),
	) != 0
	if ok && gray {
		toGray(dst)
	}
	return ok
}

func (p *pngDecoder) trim() bool {
	large := cap(p.raw)+cap(p.packed) > MostKept
	if large {
		p.raw, p.packed = nil, nil
	}
	return large
}

func (p *pngDecoder) open() bool {
	p.c = C.codec_png_new()
	if p.c == nil {
		return false
	}
	p.request = C.codec_png_request_of(p.c)
	return true
}

// stream returns the pixels' zlib stream, whose first chunk is at. It lies in as many chunks as whoever wrote it pleased. PIL
// does not look at their checksums, the stream having its own, nor at what follows them.
func (p *pngDecoder) stream(src []byte, at int) []byte {
	_, packed, at := pngChunk(src, at)
	for several := false; ; several = true {
		kind, body, next := pngChunk(src, at)
		if string(kind) != "IDAT" {
			return packed
		}
		if !several {
			p.packed = append(p.packed[:0], packed...)
		}
		p.packed = append(p.packed, body...)
		packed, at = p.packed, next
	}
}
