//go:build cgo

package codec

import (
	"bytes"
	"slices"
	"testing"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// TestWebPWithoutCgo: what builds without cgo make of WebPs is what libwebp does, and a WebP of
// another size than its header says is an error in both.
func TestWebPWithoutCgo(t *testing.T) {
	var d Decoder
	var a, b pixels.Image
	for _, name := range []string{"lossy", "lossless", "alpha", "simple-filter"} {
		src := read(t, "testdata", name+".webp")
		h, err := d.Header(src)
		if err != nil {
			t.Fatal(err)
		}
		for _, gray := range []bool{false, true} {
			if _, err := d.Decode(&a, src, Want{Gray: gray}); err != nil {
				t.Fatal(err)
			}
			if err := decodeWebPGo(&b, src, &h, Want{Gray: gray}); err != nil {
				t.Fatal(err)
			}
			if a.Channels != b.Channels || !bytes.Equal(a.Pix, b.Pix) {
				t.Errorf("%s, gray %v: samples differ", name, gray)
			}
		}
		if !hasPrefix(src, 12, "VP8X") {
			continue
		}
		src[24]++
		h.Width++
		_, err = d.Decode(&a, src, Want{})
		if other := decodeWebPGo(&b, src, &h, Want{}); err == nil || other == nil {
			t.Errorf("%s, one column too wide: %v, and without cgo: %v", name, err, other)
		}
	}
}

// TestWebPDecodesWithDataAfterItsEnd: what lies after the end that a WebP names is none of its
// pixels, and may be anything.
func TestWebPDecodesWithDataAfterItsEnd(t *testing.T) {
	var d Decoder
	defer d.Close()
	var a, b pixels.Image
	src := read(t, "testdata", "lossless.webp")
	longer := append(bytes.Clone(src), "after the end"...)
	if _, err := d.Decode(&a, src, Want{}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Decode(&b, longer, Want{}); err != nil || !bytes.Equal(a.Pix, b.Pix) {
		t.Errorf("with bytes after the end: %v", err)
	}
	// takes more bits than were there, so that the last pixels would lie after the end
	const damage = 320
	pushed := slices.Concat(src[:damage], bytes.Repeat([]byte{0xff}, 40), src[damage:])
	if _, err := d.Decode(&b, pushed, Want{}); err == nil {
		t.Error("pixels after the end are taken")
	}
}
