//go:build cgo

package codec

// libwebp is linked statically, as libjpeg-turbo is.

/*
#cgo CFLAGS: -O3 -Wall
#cgo LDFLAGS: -l:libwebpdemux.a -l:libwebp.a -lm -lpthread
#cgo LDFLAGS: -Wl,--wrap=WebPSafeMalloc -Wl,--wrap=WebPSafeCalloc -Wl,--wrap=WebPSafeFree
#cgo noescape codec_webp_decode
#cgo nocallback codec_webp_decode
#include "webp.h"
*/
import "C"

import (
	"encoding/binary"
	"image"
	"unsafe"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// decodeWebP decodes at least the given region, in one call into C.
func (d *Decoder) decodeWebP(
	dst *pixels.Image, src []byte, h *Header, want Want, region image.Rectangle,
) (image.Point, error) {
	// libwebp decodes a part of an image without reading to its end, and would accept data after
	// the end as pixels.
	size := int64(binary.LittleEndian.Uint32(src[4:])) + 8
	if size > int64(len(src)) {
		return image.Point{},
			fail(ErrTruncated, "WebP of %d bytes whose header says %d", len(src), size)
	}
	src = src[:size]
	region = upsampled(region).Intersect(image.Rect(0, 0, h.Width, h.Height))
	channels := 3
	out := decoded(region, channels, h)
	all := decoded(whole(h), 3+4, h)
	toEnd := want.Whole && (d.MostMemory == 0 || all+webpBuffers(src, h) <= d.MostMemory)
	if toEnd {
		region, out = whole(h), decoded(whole(h), channels, h)
		if hasPrefix(src, 12, "VP8X") { // it may have alpha, which may be damaged
			channels, out = 4, all
		}
	}
	if err := d.take(out + webpBuffers(src, h)); err != nil {
		return image.Point{}, err
	}
	dst.Reset(region.Dx(), region.Dy(), 3)
	into := dst
	if channels == 4 {
		into = &d.cmyk
		into.Reset(region.Dx(), region.Dy(), channels)
	}
	var most C.size_t // what libwebp may allocate; 0: no limit
	if d.Memory > 0 {
		most = C.size_t(d.Memory - out)
	}
	var need C.size_t
	status := C.codec_webp_decode(
		(*C.uint8_t)(unsafe.SliceData(src)), C.size_t(len(src)), C.int(h.Width), C.int(h.Height),
		C.int(region.Min.X), C.int(region.Min.Y), C.int(region.Dx()), C.int(region.Dy()),
		C.int(channels), flag(toEnd),
		(*C.uint8_t)(unsafe.SliceData(into.Pix)), C.size_t(into.Stride), most, &need,
	)
	// Only the pixels of a lossless image say how many tables it has, which may take up to 1.3 GB.
	if most > 0 && need > most {
		return image.Point{}, &MemoryError{max(out+int64(need), min(2*d.Memory, d.MostMemory))}
	}
	d.taken = max(d.taken, out+int64(need))
	switch status {
	case C.VP8_STATUS_OK:
	case C.VP8_STATUS_OUT_OF_MEMORY:
		return image.Point{}, fail(ErrTooLarge, "out of memory")
	case C.VP8_STATUS_NOT_ENOUGH_DATA, C.VP8_STATUS_SUSPENDED:
		return image.Point{},
			fail(ErrTruncated, "WebP of %d bytes ends before its last row", len(src))
	case C.VP8_STATUS_UNSUPPORTED_FEATURE:
		return image.Point{}, fail(ErrUnsupported, "WebP of a kind that libwebp does not support")
	case C.VP8_STATUS_USER_ABORT:
		return image.Point{}, fail(ErrCorrupt,
			"WebP whose pixel data does not have the %d x %d pixels of its header",
			h.Width, h.Height)
	default:
		return image.Point{},
			fail(ErrCorrupt, "WebP with invalid pixel data (libwebp status %d)", status)
	}
	if into != dst {
		dropAlpha(dst.Pix, into.Pix, channels, 1)
	}
	if want.Gray {
		toGray(dst)
	}
	return region.Min, nil
}

// upsampled returns the region to decode so that r equals that part of the whole image: chroma,
// which has half the resolution, is interpolated between neighbours, which a crop lacks at its
// edges. Crops start at even positions.
func upsampled(r image.Rectangle) image.Rectangle {
	return image.Rect((r.Min.X-1)&^1, (r.Min.Y-1)&^1, r.Max.X+1, r.Max.Y+1)
}
