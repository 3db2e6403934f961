//go:build cgo

package codec

import (
	"bytes"
	"image"
	"testing"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

const jpegExact = true

// setPlain leaves libjpeg's own Huffman decoder in place.
func setPlain(d *Decoder, plain bool) { d.jpeg.plain = plain }

// FuzzEntropy: our Huffman decoder gives what libjpeg's does, or leaves the image to it.
func FuzzEntropy(f *testing.F) {
	seeds(f)
	ours, libjpegs := Decoder{MaxPixels: 1 << 18}, Decoder{MaxPixels: 1 << 18}
	libjpegs.jpeg.plain = true
	var a, b pixels.Image
	f.Fuzz(func(t *testing.T, src []byte) {
		h, err := ours.Header(src)
		if err != nil || h.Format != JPEG {
			return
		}
		for _, want := range []Want{{}, {Region: image.Rect(h.Width/2, h.Height/2, h.Width, h.Height)}, {Scale: 2}, {Scale: 1}} {
			_, err := ours.Decode(&a, src, want)
			_, other := libjpegs.Decode(&b, src, want)
			if (err == nil) != (other == nil) {
				t.Fatalf("%+v: %v, and libjpeg: %v", want, err, other)
			}
			if err == nil && !bytes.Equal(a.Pix, b.Pix) {
				t.Fatalf("%+v: samples differ (fast %v)", want, ours.jpeg.request.fast)
			}
		}
	})
}

// TestFast: common JPEGs do not fall back to libjpeg's Huffman decoder.
func TestFast(t *testing.T) {
	var d Decoder
	defer d.Close()
	var m pixels.Image
	src := jpegOf(t, picture(200, 100), 90)
	for _, want := range []Want{{}, {Region: image.Rect(20, 30, 100, 70)}, {Scale: 4}} {
		if _, err := d.Decode(&m, src, want); err != nil || d.jpeg.request.fast == 0 || d.jpeg.request.warnings != 0 {
			t.Errorf("%+v: %v, fast %v, warnings %v", want, err, d.jpeg.request.fast, d.jpeg.request.warnings)
		}
	}
}
