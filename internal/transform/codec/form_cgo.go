//go:build cgo

package codec

/*
#cgo noescape codec_jpeg_decode_form
#cgo nocallback codec_jpeg_decode_form
#cgo noescape codec_jpeg_pack
#cgo nocallback codec_jpeg_pack
#cgo noescape codec_jpeg_scan
#cgo nocallback codec_jpeg_scan
#include "jpeg.h"
*/
import "C"

import (
	"image"
	"unsafe"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// pack is Pack for a JPEG with a sound header.
func (d *Decoder) pack(dst *Packed, src []byte, h *Header, limit int) error {
	if err := d.take(packBuffers(h)); err != nil {
		return err
	}
	j := &d.jpeg
	if err := j.open(); err != nil {
		return err
	}
	defer C.codec_jpeg_trim(j.c)
	var out C.codec_packed
	switch C.codec_jpeg_pack(j.c, bytesOf(src), C.size_t(len(src)), C.size_t(limit), &out) {
	case C.codec_ok:
	case C.codec_memory:
		return fail(ErrTooLarge, "out of memory")
	default:
		return fail(ErrNotPacked, "%s", C.GoString(&j.request.message[0]))
	}
	dst.Header = append(dst.Header[:0], src[:out.header_size]...)
	dst.Body = append(dst.Body[:0], unsafe.Slice((*byte)(out.body), out.body_size)...)
	dst.Head, dst.Tail = dst.Head[:0], dst.Tail[:0]
	dst.ScanSize = 0
	dst.Ones = out.ones != 0
	if out.exact == 0 {
		dst.Head = append(dst.Head, unsafe.Slice((*byte)(out.head), out.head_size)...)
		return nil
	}
	dst.Tail = append(dst.Tail, src[out.scan_end:]...)
	dst.ScanSize = int(out.scan_end - out.header_size)
	return nil
}

// decodePacked decodes the given region of the scaled image into dst.
func (d *Decoder) decodePacked(dst *pixels.Image, p *Packed, scale int,
	region image.Rectangle,
) error {
	j := &d.jpeg
	if err := j.open(); err != nil {
		return err
	}
	j.prepare(dst, scale, region)
	head := p.head()
	return j.result(C.codec_jpeg_decode_form(j.c, bytesOf(head), C.size_t(len(head)),
		bytesOf(p.Body), C.size_t(len(p.Body)), bytesOf(dst.Pix), C.size_t(dst.Stride)), len(head))
}

// appendScan appends the scan of an exact form.
func (d *Decoder) appendScan(dst []byte, p *Packed) ([]byte, error) {
	j := &d.jpeg
	if err := j.open(); err != nil {
		return dst, err
	}
	begin := len(dst)
	dst = append(dst, make([]byte, p.ScanSize+8)...)
	result := C.codec_jpeg_scan(j.c, bytesOf(p.Header), C.size_t(len(p.Header)), bytesOf(p.Body),
		C.size_t(len(p.Body)), flag(p.Ones), bytesOf(dst[begin:]), C.size_t(p.ScanSize))
	dst = dst[:begin+p.ScanSize]
	if result != C.codec_ok {
		return dst[:begin], fail(ErrCorrupt, "%s", damagedForm)
	}
	return dst, nil
}

func bytesOf(b []byte) *C.uint8_t { return (*C.uint8_t)(unsafe.SliceData(b)) }
