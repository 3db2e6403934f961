//go:build cgo

package codec

import (
	"bytes"
	"image"
	"image/jpeg"
	"testing"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

const jpegExact = true

// setPlain leaves libjpeg's own Huffman decoder and inverse DCT in place.
func setPlain(d *Decoder, plain bool) { d.jpeg.plain = plain }

// FuzzEntropy: our Huffman decoder gives what libjpeg's does, or leaves the image to it.
func FuzzEntropy(f *testing.F) {
	seeds(f)
	// with a marker after the scan that does not belong there, or with none
	for _, size := range []int{16, 400} {
		whole := jpegOf(f, picture(size, size), 90)
		f.Add(append(bytes.Clone(whole[:len(whole)-2]), 0xff, 0x30))
		f.Add(append(bytes.Clone(whole[:len(whole)-2]), 0xff, 0xd3, 0xff, 0xd9))
		f.Add(append(append(bytes.Clone(whole[:len(whole)-2]), make([]byte, 20000)...), 0xff, 0x30))
		f.Add(whole[:len(whole)-2])
	}
	d := newTwoDecoders(f)
	f.Fuzz(func(t *testing.T, src []byte) {
		h, err := d.ours.Header(src)
		if err != nil || h.Format != JPEG {
			return
		}
		for _, want := range []Want{
			{},
			{Region: image.Rect(h.Width/2, h.Height/2, h.Width, h.Height)},
			{Scale: 2},
			{Scale: 1},
		} {
			if says := d.difference(src, want); says != "" {
				t.Fatalf("%+v: %s", want, says)
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
		if _, err := d.Decode(&m, src, want); err != nil || d.jpeg.request.fast == 0 ||
			d.jpeg.request.warnings != 0 {
			t.Errorf("%+v: %v, fast %v, warnings %v", want, err, d.jpeg.request.fast,
				d.jpeg.request.warnings)
		}
	}
}

// TestWithoutCgo: image/jpeg is as near to libjpeg-turbo as documented at decodeJPEGGo.
func TestWithoutCgo(t *testing.T) {
	dir, cases := references(t)
	var d Decoder
	defer d.Close()
	var a, b pixels.Image
	worst := 0
	sum := 0.0
	samples := 0
	for _, c := range cases {
		src := read(t, dir, c.File)
		h, err := d.Header(src)
		if err != nil || h.Format != JPEG || damaged(c.Name) {
			continue
		}
		for _, want := range []Want{{Scale: 8}, {Scale: 8, Gray: true}} {
			if _, err := d.Decode(&a, src, want); err != nil {
				t.Fatal(err)
			}
			if err := decodeJPEGGo(&b, src, &h, want); err != nil {
				t.Fatalf("%s: %v", c.Name, err)
			}
			_, most, mean := difference(b.Pix, a.Pix)
			worst = max(worst, most)
			sum += mean * float64(len(a.Pix))
			samples += len(a.Pix)
			if most > 4 {
				t.Errorf("%s: samples differ by up to %d, mean %.3f", c.Name, most, mean)
			}
		}
		if err := decodeJPEGGo(&b, src, &h, Want{Scale: 2}); err != nil {
			t.Fatal(err)
		}
		if w, ht := ScaledSize(JPEG, h.Width, h.Height, 2); b.Width != w || b.Height != ht {
			t.Errorf("%s: %dx%d at scale 2", c.Name, b.Width, b.Height)
		}
	}
	if mean := sum / float64(samples); mean > 0.1 {
		t.Errorf("samples differ by %.3f in the mean", mean)
	} else {
		t.Logf("samples differ by up to %d, mean %.3f", worst, mean)
	}
}

// TestDamagedJPEGDoesNotUseTablesOfTheLast: the result of a damaged image that lacks tables does
// not depend on the images before it: the decoder must not use their tables.
func TestDamagedJPEGDoesNotUseTablesOfTheLast(t *testing.T) {
	var buffer bytes.Buffer
	noise := image.NewGray(image.Rect(0, 0, 40, 30))
	for i := range noise.Pix {
		noise.Pix[i] = byte(i * i)
	}
	if err := jpeg.Encode(&buffer, noise, &jpeg.Options{Quality: 40}); err != nil {
		t.Fatal(err)
	}
	whole := buffer.Bytes()
	for name, marker := range map[string]byte{
		"no quantisation tables": 0xdb,
		"no Huffman tables":      0xc4,
	} {
		// they become comments
		damaged := bytes.ReplaceAll(whole, []byte{0xff, marker}, []byte{0xff, 0xfe})
		var fresh, used Decoder
		var a, b pixels.Image
		if _, err := used.Decode(&b, whole, Want{}); err != nil {
			t.Fatal(err)
		}
		_, errFresh := fresh.Decode(&a, damaged, Want{})
		_, errUsed := used.Decode(&b, damaged, Want{})
		if (errFresh == nil) != (errUsed == nil) || errFresh == nil && !bytes.Equal(a.Pix, b.Pix) {
			t.Errorf("%s: fresh %v, used %v, or other pixels", name, errFresh, errUsed)
		}
		fresh.Close()
		used.Close()
	}
}
