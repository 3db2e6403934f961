//go:build cgo

package codec

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"image"
	"testing"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// FuzzPNG: png.c gives what Go's decoder does, of the whole and of a part, where both take an
// image.
func FuzzPNG(f *testing.F) {
	seeds(f)
	for _, kind := range []byte{pngGray, pngRGB, pngPalette, pngGrayAlpha, pngRGBA} {
		for _, depth := range []byte{1, 2, 4, 8, 16} {
			src := pngOf(f, picture(9, 7))
			src[24], src[25] = depth, kind
			f.Add(src)
		}
	}
	var ours Decoder
	defer ours.Close()
	var a, b, part, rows pixels.Image
	f.Fuzz(func(t *testing.T, src []byte) {
		src = summed(src)
		d := Decoder{MaxPixels: 1 << 18}
		h, err := d.Header(src)
		if err != nil || h.Format != PNG || pngHolds(src, &h) != nil {
			return
		}
		for _, gray := range []bool{false, true} {
			if !ours.png.decode(&a, src, &h, gray, image.Rect(0, 0, h.Width, h.Height)) {
				return
			}
			if err := decodePNGGo(&b, src, &h, Want{Gray: gray}); err != nil {
				return
			}
			if gray {
				toGray(&b)
			}
			if a.Channels != b.Channels || !bytes.Equal(a.Pix, b.Pix) {
				t.Fatalf("%+v, gray %v: samples differ", h, gray)
			}
			region := image.Rect(h.Width/3, h.Height/4, h.Width/3+(h.Width+2)/3,
				h.Height/4+(h.Height+1)/2)
			if !ours.png.decode(&part, src, &h, gray, region) {
				t.Fatalf("%+v: not of %v", h, region)
			}
			want := a.Sub(region)
			if !ours.png.decodeRows(&rows, src, &h, gray, region) ||
				!bytes.Equal(rows.Pix, part.Pix) {
				t.Fatalf("%+v, %v: rows that are inflated a few at a time differ", h, region)
			}
			for y := range part.Height {
				if !bytes.Equal(part.Row(y), want.Row(y)) {
					t.Fatalf("%+v, %v: row %d differs", h, region, y)
				}
			}
		}
	})
}

// summed returns a PNG with the right checksum in every chunk: a fuzzer does not find them.
func summed(src []byte) []byte {
	if !hasPrefix(src, 0, pngSignature) {
		return src
	}
	src = bytes.Clone(src)
	for at := len(pngSignature); ; {
		kind, _, next := pngChunk(src, at)
		if kind == nil || next > len(src) {
			return src
		}
		binary.BigEndian.PutUint32(src[next-4:], crc32.ChecksumIEEE(src[at+4:next-4]))
		at = next
	}
}

// TestCommonPNGs: common PNGs are not left to Go's decoder.
func TestCommonPNGs(t *testing.T) {
	var d Decoder
	defer d.Close()
	var m pixels.Image
	whole := pngOf(t, picture(100, 80))
	for name, src := range map[string][]byte{
		"RGB": whole, "in chunks": inChunks(t, whole, 1000),
		"gray":    pngOf(t, image.NewGray(image.Rect(0, 0, 50, 60))),
		"16 bits": pngOf(t, image.NewRGBA64(image.Rect(0, 0, 50, 60))),
	} {
		h, err := d.Header(src)
		if err != nil || !d.png.decode(&m, src, &h, false, image.Rect(10, 20, 30, 50)) {
			t.Errorf("%s: left to Go's decoder (%v)", name, err)
		}
	}
}

// TestLargePNG: a decoder does not keep the room that one huge image took.
func TestLargePNG(t *testing.T) {
	var d Decoder
	defer d.Close()
	var m pixels.Image
	for _, c := range []struct {
		side  int
		keeps bool
	}{{100, true}, {8500, false}} {
		src := pngOf(t, image.NewGray(image.Rect(0, 0, c.side, c.side)))
		if _, err := d.Decode(&m, src, Want{Region: image.Rect(0, 0, 10, 10)}); err != nil {
			t.Fatal(err)
		}
		if large := d.Trim(); large == c.keeps {
			t.Errorf("%d x %d: Trim: %v", c.side, c.side, large)
		}
		if kept := cap(d.png.raw); kept > MostKept || (kept > 0) != c.keeps {
			t.Errorf("%d x %d: keeps %d bytes", c.side, c.side, kept)
		}
	}
}
