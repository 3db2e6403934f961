//go:build cgo

package codec

// libdeflate is linked statically, as libjpeg-turbo is.

/*
#cgo CFLAGS: -O3 -Wall
#cgo LDFLAGS: -l:libdeflate.a
#cgo noescape codec_png_decode
#cgo nocallback codec_png_decode
#cgo noescape codec_png_rows
#cgo nocallback codec_png_rows
#include "png.h"
*/
import "C"

import (
	"compress/flate"
	"encoding/binary"
	"hash/adler32"
	"image"
	"io"
	"slices"
	"unsafe"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// pngDecoder holds libdeflate's state, in C memory that is kept between images, and Go buffers.
type pngDecoder struct {
	c       *C.codec_png
	request *C.codec_png_request
	packed  []byte // the zlib stream, if it is split over several chunks
	raw     []byte // the inflated stream: filtered rows
	indices bool   // a palette's indices are the pixels
}

func (p *pngDecoder) close() {
	if p.c != nil {
		C.codec_png_free(p.c)
	}
	*p = pngDecoder{}
}

// decodePNG decodes the given region in one call into C, or, if the PNG is interlaced or damaged,
// the whole image with Go's decoder, which reports the damage.
func (d *Decoder) decodePNG(
	dst *pixels.Image, src []byte, h *Header, want Want, region image.Rectangle,
) (image.Point, error) {
	if err := pngHolds(src, h); err != nil {
		return image.Point{}, err
	}
	layout, ok := layoutOf(src)
	if d.png.indices = want.raw; want.raw && layout.depth == 16 {
		ok = false
	}
	if ok {
		row := layout.row(h)
		inflated := pngRoom(row, h.Height)
		channels := 3
		if want.Gray && h.Channels == 1 {
			channels = 1
		}
		out := decoded(region, channels, h)
		most := int64(wholePNG)
		if d.MostMemory > 0 {
			most = min(most, d.MostMemory-out-int64(len(src)))
		}
		if inflated <= most {
			if err := d.take(out + inflated + int64(len(src))); err != nil {
				return image.Point{}, err
			}
			ok = d.png.decode(dst, src, h, want.Gray, region)
		} else {
			if err := d.take(out + pngRoom(row, d.png.batch(row)) + inflating); err != nil {
				return image.Point{}, err
			}
			ok = d.png.decodeRows(dst, src, h, want.Gray, region)
		}
	}
	if !ok {
		if err := d.take(goPNG(src, h)); err != nil {
			return image.Point{}, err
		}
		if d.png.kept() > MostKept/16 {
			d.png.drop()
		}
		return image.Point{}, decodePNGGo(dst, src, h, want)
	}
	if want.raw {
		unscale(dst, src)
	}
	return region.Min, nil
}

// inflating is the approximate memory of Go's inflater.
const inflating = 64 << 10

// row returns the bytes of a row, without the filter byte.
func (l *pngLayout) row(h *Header) int { return (h.Width*pngSamples[l.colour]*l.depth + 7) / 8 }

// pngRoom returns how many bytes codec_png_decode needs for the given number of rows.
func pngRoom(row, rows int) int64 {
	return int64(row) + int64(row+1)*int64(rows) + C.codec_png_slack
}

// decode is decodePNG for PNGs that png.c supports, with all rows inflated at once.
func (p *pngDecoder) decode(dst *pixels.Image, src []byte, h *Header, gray bool,
	region image.Rectangle,
) bool {
	layout, ok := layoutOf(src)
	if !ok || p.c == nil && !p.open() {
		return false
	}
	row := layout.row(h)
	p.prepare(dst, &layout, h, gray, region, h.Height)
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

// prepare makes room for the given number of inflated rows, and builds the request.
func (p *pngDecoder) prepare(dst *pixels.Image, layout *pngLayout, h *Header, gray bool,
	region image.Rectangle, rows int,
) {
	row := layout.row(h)
	n := int(pngRoom(row, rows))
	p.raw = slices.Grow(p.raw[:0], n)[:n]
	clear(p.raw[:row])
	channels := 3
	if gray && h.Channels == 1 {
		channels = 1
	}
	dst.Reset(region.Dx(), region.Dy(), channels)
	r := p.request
	r.width, r.height = C.int(h.Width), C.int(h.Height)
	r.depth, r.colour = C.int(layout.depth), C.int(layout.colour)
	r.x, r.y = C.int(region.Min.X), C.int(region.Min.Y)
	r.columns, r.rows = C.int(region.Dx()), C.int(region.Dy())
	r.channels = C.int(channels)
	if layout.colour == pngPalette && p.indices {
		r.colour = pngGray
	} else if layout.colour == pngPalette {
		colours := unsafe.Slice(&r.palette[0][0], len(r.palette)*3)
		r.colours = C.int(len(layout.palette) / 3)
		for i, v := range layout.palette {
			colours[i] = C.uint8_t(v)
		}
	}
}

// batch returns how many rows are inflated at a time if the image is not inflated at once.
func (*pngDecoder) batch(row int) int { return max(1<<20/(row+1), 1) }

// decodeRows is decode with few rows inflated at a time, by Go's inflater. It accepts the same
// streams as decode; see inflate_all.
func (p *pngDecoder) decodeRows(dst *pixels.Image, src []byte, h *Header, gray bool,
	region image.Rectangle,
) bool {
	layout, ok := layoutOf(src)
	if !ok || p.c == nil && !p.open() {
		return false
	}
	chunks := pngChunks{src: src, at: layout.pixels}
	var header [2]byte
	if _, err := io.ReadFull(&chunks, header[:]); err != nil ||
		header[0]&15 != 8 || header[0]>>4 > 7 || header[1]&32 != 0 ||
		binary.BigEndian.Uint16(header[:])%31 != 0 {
		return false
	}
	inflate, sum := flate.NewReader(&chunks), adler32.New()
	row, batch := layout.row(h), 0
	p.prepare(dst, &layout, h, gray, region, min(p.batch(row), h.Height))
	for y := 0; y < h.Height; y += batch {
		batch = min(p.batch(row), h.Height-y)
		rows := p.raw[row:][:(row+1)*batch]
		if _, err := io.ReadFull(inflate, rows); err != nil {
			return false
		}
		_, _ = sum.Write(rows) // never fails
		if C.codec_png_rows(
			p.c, (*C.uint8_t)(unsafe.SliceData(p.raw)), C.size_t(row), C.int(y), C.int(batch),
			(*C.uint8_t)(unsafe.SliceData(dst.Pix)), C.size_t(dst.Stride),
		) == 0 {
			return false
		}
	}
	var beyond [4]byte
	if n, err := inflate.Read(beyond[:1]); n != 0 || err != io.EOF {
		return false
	}
	if _, err := io.ReadFull(&chunks, beyond[:]); err == nil &&
		binary.BigEndian.Uint32(beyond[:]) != sum.Sum32() {
		return false
	}
	if gray {
		toGray(dst)
	}
	return true
}

// pngChunks reads the concatenated contents of the pixels' chunks.
type pngChunks struct {
	src  []byte
	at   int    // offset of the next chunk
	body []byte // unread part of the current one
}

func (c *pngChunks) next() error {
	for len(c.body) == 0 {
		kind, body, next := pngChunk(c.src, c.at)
		if string(kind) != "IDAT" {
			return io.EOF
		}
		c.body, c.at = body, next
	}
	return nil
}

func (c *pngChunks) Read(p []byte) (int, error) {
	if err := c.next(); err != nil {
		return 0, err
	}
	n := copy(p, c.body)
	c.body = c.body[n:]
	return n, nil
}

func (c *pngChunks) ReadByte() (byte, error) {
	if err := c.next(); err != nil {
		return 0, err
	}
	b := c.body[0]
	c.body = c.body[1:]
	return b, nil
}

func (p *pngDecoder) kept() int64 { return int64(cap(p.raw) + cap(p.packed)) }

func (p *pngDecoder) drop() { p.raw, p.packed = nil, nil }

func (p *pngDecoder) trim() bool {
	large := p.kept() > MostKept
	if large {
		p.drop()
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

// stream returns the pixels' zlib stream, whose first chunk is at offset at. It may be split over
// any number of chunks. Like PIL it verifies neither their checksums, because the stream has its
// own, nor what follows them.
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
