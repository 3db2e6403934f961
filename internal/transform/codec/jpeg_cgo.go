//go:build cgo

package codec

// libjpeg-turbo is linked statically: entropy.c accesses structures of jpegint.h, which match only
// the library built with that header, and the binary needs no library at run time.

/*
#cgo CFLAGS: -O3 -Wall
#cgo LDFLAGS: -l:libjpeg.a
#cgo noescape codec_jpeg_decode
#cgo nocallback codec_jpeg_decode
#include "jpeg.h"
*/
import "C"

import (
	"image"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// jpegDecoder holds libjpeg-turbo's state, in C memory that is kept between images.
type jpegDecoder struct {
	c       *C.codec_jpeg
	request *C.codec_request
	// plain disables entropy.c and idct.c. For tests.
	plain bool
	// level limits the instructions of form.c and idct.c (form.h). For tests. 0: no limit.
	level int
}

func (j *jpegDecoder) close() {
	if j.c != nil {
		C.codec_jpeg_free(j.c)
		j.c, j.request = nil, nil
	}
}

// decodeJPEG decodes the given region of the scaled image into dst, in one call into C.
func (d *Decoder) decodeJPEG(
	dst *pixels.Image, src []byte, h *Header, want Want, region image.Rectangle,
) (image.Point, error) {
	channels := 3
	switch {
	case h.Channels == 1 && want.Gray:
		channels = 1
	case h.Channels == 4:
		channels = 3 + 4
	}
	if err := d.take(decoded(region, channels, h) + jpegBuffers(src, h)); err != nil {
		return image.Point{}, err
	}
	into := dst
	switch {
	case h.Channels == 1 && want.Gray:
		dst.Reset(region.Dx(), region.Dy(), 1)
	case h.Channels == 4:
		into = &d.cmyk
		into.Reset(region.Dx(), region.Dy(), 4)
		dst.Reset(region.Dx(), region.Dy(), 3)
	default:
		dst.Reset(region.Dx(), region.Dy(), 3)
	}
	var err error
	if want.packed != nil {
		err = d.decodePacked(into, want.packed, want.Scale, region)
	} else {
		toEnd := want.Whole && suspicious(src, h)
		err = d.jpeg.decode(into, src, want.Scale, region, toEnd)
	}
	if err != nil {
		return image.Point{}, err
	}
	if into != dst {
		cmykToRGB(dst.Pix, into.Pix)
	}
	if want.Gray {
		toGray(dst)
	}
	return region.Min, nil
}

func (j *jpegDecoder) decode(dst *pixels.Image, src []byte, scale int,
	region image.Rectangle, toEnd bool,
) error {
	if err := j.open(); err != nil {
		return err
	}
	j.prepare(dst, scale, region)
	j.request.plain, j.request.to_end = flag(j.plain), flag(toEnd)
	return j.result(C.codec_jpeg_decode(j.c, bytesOf(src), C.size_t(len(src)), bytesOf(dst.Pix),
		C.size_t(dst.Stride)), len(src))
}

// open makes sure that there is a state.
func (j *jpegDecoder) open() error {
	if j.c != nil {
		return nil
	}
	j.c = C.codec_jpeg_new()
	if j.c == nil {
		return fail(ErrTooLarge, "out of memory")
	}
	j.request = C.codec_jpeg_request(j.c)
	return nil
}

// prepare makes a request for a region of an image, from a file that is read as far as necessary.
func (j *jpegDecoder) prepare(dst *pixels.Image, scale int, region image.Rectangle) {
	r := j.request
	r.scale, r.channels = C.int(scale), C.int(dst.Channels)
	r.x, r.y = C.int(region.Min.X), C.int(region.Min.Y)
	r.width, r.height = C.int(region.Dx()), C.int(region.Dy())
	r.plain, r.to_end = 0, 0
	r.level = C.int(j.level)
}

// result returns the error of what a request for a file of size bytes returned.
func (j *jpegDecoder) result(code C.int, size int) error {
	switch code {
	case C.codec_ok:
		return nil
	case C.codec_truncated:
		return fail(ErrTruncated, "JPEG of %d bytes ends before its last row", size)
	case C.codec_memory:
		return fail(ErrTooLarge, "out of memory")
	}
	return fail(ErrCorrupt, "%s", C.GoString(&j.request.message[0]))
}

func flag(b bool) C.int {
	if b {
		return 1
	}
	return 0
}
