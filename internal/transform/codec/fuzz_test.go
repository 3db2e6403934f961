package codec

import (
	"bytes"
	"errors"
	"image"
	"image/color"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

func seeds(f *testing.F) {
	for _, size := range [][2]int{{1, 1}, {17, 9}, {40, 30}} {
		m := picture(size[0], size[1])
		for _, quality := range []int{20, 95} {
			f.Add(jpegOf(f, m, quality))
		}
		gray := image.NewGray(m.Bounds())
		paletted := image.NewPaletted(m.Bounds(),
			color.Palette{color.NRGBA{1, 2, 3, 255}, color.NRGBA{200, 100, 0, 128}})
		f.Add(jpegOf(f, gray, 80))
		f.Add(pngOf(f, m))
		f.Add(pngOf(f, gray))
		f.Add(pngOf(f, paletted))
		f.Add(pngOf(f, image.NewNRGBA64(m.Bounds())))
		f.Add(pngOf(f, image.NewGray16(m.Bounds())))
	}
	f.Add([]byte("RIFF\x24\x00\x00\x00WEBPVP8L" +
		"\x17\x00\x00\x00\x2f\x00\x00\x00\x10\x07\x10\x11\x11\x88\x88\xfe\x07\x00\x00\x00\x00"))
	f.Add([]byte("RIFF\x24\x00\x00\x00WEBPVP8 " +
		"\x18\x00\x00\x000\x01\x00\x9d\x01*\x01\x00\x01\x00" +
		"\x02\x004%\xa4\x00\x03p\x00\xfe\xfb\x94\x00\x00"))
	for _, name := range []string{"lossy", "lossless", "alpha", "simple-filter"} {
		f.Add(read(f, "testdata", name+".webp"))
	}
	f.Add([]byte("RIFF\x24\x00\x00\x00WEBPVP8X\xff\x00\x00\x00" + strings.Repeat("\x00", 16)))
	f.Add([]byte("GIF89a"))
}

// known reports whether err is one that callers can distinguish.
func known(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Kind != nil
}

func FuzzHeader(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, src []byte) {
		var d Decoder
		h, err := d.Header(src)
		switch {
		case err != nil && !known(err):
			t.Fatalf("%v", err)
		case err == nil &&
			(h.Width <= 0 || h.Height <= 0 || h.Orientation < 1 || h.Orientation > 8 ||
				int64(h.Width)*int64(h.Height) > MaxPixels):
			t.Fatalf("%+v", h)
		case err == nil:
			if made := AppendMetadata([]byte("x"), src, h.Format); len(made) < 1 || made[0] != 'x' ||
				len(made) > len(src)+100 {
				t.Fatalf("%d bytes of metadata, of %d", len(made), len(src))
			}
		}
	})
}

// FuzzDecode: nothing crashes, errors are known, and a part is what it is in the whole.
func FuzzDecode(f *testing.F) {
	seeds(f)
	d := Decoder{MaxPixels: 1 << 18}
	defer d.Close()
	var all, part pixels.Image
	f.Fuzz(func(t *testing.T, src []byte) {
		h, err := d.Header(src)
		if err != nil {
			return
		}
		_, err = d.Decode(&all, src, Want{Orient: true})
		if err != nil {
			if !known(err) {
				t.Fatal(err)
			}
			return
		}
		w, ht := h.Oriented()
		if all.Width != w || all.Height != ht {
			t.Fatalf("%dx%d, and the header says %dx%d", all.Width, all.Height, w, ht)
		}
		region := image.Rect(w/3, ht/4, w/3+(w+2)/3, ht/4+(ht+1)/2)
		origin, err := d.Decode(&part, src, Want{Orient: true, Region: region})
		if err != nil {
			t.Fatalf("region %v: %v", region, err)
		}
		got, want := part.Sub(region.Sub(origin)), all.Sub(region)
		for y := range got.Height {
			if !bytes.Equal(got.Row(y), want.Row(y)) {
				t.Fatalf("region %v of %dx%d: row %d differs", region, w, ht, y)
			}
		}
	})
}
