//go:build cgo

package codec

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"slices"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// twoDecoders decode with our Huffman decoder, and with libjpeg's.
type twoDecoders struct {
	ours, libjpegs Decoder
	a, b           pixels.Image
}

func newTwoDecoders(t testing.TB) *twoDecoders {
	d := &twoDecoders{ours: Decoder{MaxPixels: 1 << 18}, libjpegs: Decoder{MaxPixels: 1 << 18}}
	d.libjpegs.jpeg.plain = true
	t.Cleanup(func() { d.ours.Close(); d.libjpegs.Close() })
	return d
}

// difference describes in what the two differ about an image; empty: in nothing.
func (d *twoDecoders) difference(src []byte, want Want) string {
	_, err := d.ours.Decode(&d.a, src, want)
	_, other := d.libjpegs.Decode(&d.b, src, want)
	switch {
	case (err == nil) != (other == nil):
		return fmt.Sprintf("%v, and libjpeg: %v", err, other)
	case err == nil && !bytes.Equal(d.a.Pix, d.b.Pix):
		return fmt.Sprintf("samples differ (fast %v)", d.ours.jpeg.request.fast)
	}
	return ""
}

// scanOf returns where the entropy-coded data of a JPEG of one scan begins and ends, and where its
// restart markers are.
func scanOf(t *testing.T, src []byte) (begin, end int, restarts []int) {
	t.Helper()
	sos := bytes.LastIndex(src, []byte{0xff, markerSOS})
	begin = sos + 2 + int(src[sos+2])<<8 + int(src[sos+3])
	for at := begin; at+1 < len(src); at++ {
		switch {
		case src[at] != 0xff || src[at+1] == 0:
		case src[at+1] == markerEOI:
			return begin, at, restarts
		case src[at+1] >= markerRST0 && src[at+1] < markerSOI:
			restarts = append(restarts, at)
		}
	}
	t.Fatal("a JPEG without an end")
	return
}

// TestScanEndsWhereLibjpegEndsIt: our decoder accepts a scan as complete exactly if libjpeg does,
// with the same result, for all kinds of ends and missing data.
func TestScanEndsWhereLibjpegEndsIt(t *testing.T) {
	d := newTwoDecoders(t)
	files := map[string][]byte{"none": jpegOf(t, picture(120, 90), 90)}
	for _, name := range []string{
		"restart-1", "restart-7", "restart-444", "restart-gray",
		"restart-long",
	} {
		files[name] = read(t, "testdata", name+".jpg")
	}
	for name, src := range files {
		begin, end, restarts := scanOf(t, src)
		variants := map[string][]byte{
			"as it is":              src,
			"no end":                src[:end],
			"rubbish after the end": slices.Concat(src, []byte("rubbish")),
		}
		// 0xd0 to 0xd7 are restarts
		for _, marker := range []byte{
			0x30, 0x02, 0xd0, 0xd1, 0xd2, 0xd3, 0xd4, 0xd5, 0xd6, 0xd7,
			0xd8, 0xda, 0xfe,
		} {
			variants[fmt.Sprintf("%#x before the end", marker)] = slices.Concat(src[:end],
				[]byte{0xff, marker}, src[end:])
			variants[fmt.Sprintf("%#x and what is no marker", marker)] = slices.Concat(src[:end],
				[]byte{0xff, marker, 0xff, 0x30, 0xff, markerEOI})
			variants[fmt.Sprintf("%#x and more data", marker)] = slices.Concat(src[:end],
				[]byte{0xff, marker}, src[begin:])
		}
		for _, missing := range []int{1, 3, 20, 200} {
			if end-missing > begin {
				variants[fmt.Sprintf("%d bytes missing before the end",
					missing)] = slices.Concat(src[:end-missing], src[end:])
			}
			variants[fmt.Sprintf("%d bytes more before the end",
				missing)] = slices.Concat(src[:end], bytes.Repeat([]byte{0x5a}, missing), src[end:])
		}
		for i, at := range restarts[:min(len(restarts), 3)] {
			for _, by := range []byte{1, 2, 3, 4, 7} {
				other := bytes.Clone(src)
				other[at+1] = markerRST0 + (other[at+1]-markerRST0+by)&7
				variants[fmt.Sprintf("restart %d is %d later", i, by)] = other
			}
			variants[fmt.Sprintf("restart %d is missing", i)] = slices.Concat(src[:at], src[at+2:])
			variants[fmt.Sprintf("restart %d comes twice", i)] = slices.Concat(src[:at],
				src[at:at+2], src[at:])
			before := begin
			if i > 0 {
				before = restarts[i-1] + 2
			}
			variants[fmt.Sprintf("the data before restart %d are missing",
				i)] = slices.Concat(src[:before], src[at:])
			variants[fmt.Sprintf("the half before restart %d is missing",
				i)] = slices.Concat(src[:(before+at)/2], src[at:])
		}
		for what, variant := range variants {
			h, err := d.ours.Header(variant)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []Want{
				{},
				{Region: image.Rect(h.Width/2, h.Height/2, h.Width, h.Height)},
				{Scale: 2},
			} {
				if says := d.difference(variant, want); says != "" {
					t.Errorf("restarts %s, %s, %+v: %s", name, what, want, says)
				}
			}
		}
	}
}

// TestTablesOfTheLastImageAreNotReused: tables are rebuilt if only the symbols of the codes differ
// from those of the last image.
func TestTablesOfTheLastImageAreNotReused(t *testing.T) {
	d := newTwoDecoders(t)
	whole := jpegOf(t, image.NewGray(image.Rect(0, 0, 64, 64)), 90)
	noisy := jpegOf(t, picture(64, 64), 90)
	for class := range 2 { // DC and AC codes
		for _, src := range [][]byte{whole, noisy} {
			other := bytes.Clone(src)
			dht := bytes.Index(other, []byte{0xff, markerDHT}) + 4
			for tables := int(other[dht-2])<<8 + int(other[dht-1]) - 2; tables > 0; {
				counts, symbols := other[dht+1:dht+17], 0
				for _, n := range counts {
					symbols += int(n)
				}
				if int(other[dht]>>4) == class {
					slices.Reverse(other[dht+17 : dht+17+symbols])
				}
				dht, tables = dht+17+symbols, tables-17-symbols
			}
			for _, s := range [][]byte{src, other, src} {
				if says := d.difference(s, Want{}); says != "" {
					t.Errorf("class %d: %s", class, says)
				}
			}
		}
	}
}

// TestManyScans: a file of a few bytes per scan does not keep the decoder busy for ever.
func TestManyScans(t *testing.T) {
	src := read(t, "testdata", "scans.jpg")
	last := bytes.LastIndex(src, []byte{0xff, markerSOS})
	end := len(src) - 2
	for scans, ok := range map[int]bool{10: true, 1100: false} {
		many := slices.Concat(src[:last], bytes.Repeat(src[last:end], scans), src[end:])
		var d Decoder
		var m pixels.Image
		_, err := d.Decode(&m, many, Want{})
		if ok != (err == nil) ||
			!ok && (!errors.Is(err, ErrCorrupt) ||
				!strings.Contains(err.Error(), "more than 1000 scans")) {
			t.Errorf("%d scans: %v", scans, err)
		}
		d.Close()
	}
}

// TestRegionsBeyondTheImage: regions are checked in C against the size in the file, whatever Go
// asks for.
func TestRegionsBeyondTheImage(t *testing.T) {
	src := jpegOf(t, picture(64, 48), 90)
	var d Decoder
	defer d.Close()
	for _, region := range []image.Rectangle{
		image.Rect(0, 0, 65, 48), image.Rect(0, 0, 64, 49), image.Rect(60, 40, 70, 48),
		image.Rect(0, 47, 64, 60), image.Rect(64, 0, 65, 1),
	} {
		var m pixels.Image
		m.Reset(region.Dx(), region.Dy(), 3)
		if err := d.jpeg.decode(&m, src, 8, region, false); !errors.Is(err, ErrCorrupt) ||
			!strings.Contains(err.Error(), "the header changed") {
			t.Errorf("%v of 64 x 48 pixels: %v", region, err)
		}
	}
	var m pixels.Image
	m.Reset(64, 48, 3)
	if err := d.jpeg.decode(&m, src, 8, image.Rect(0, 0, 64, 48), false); err != nil {
		t.Error(err)
	}
}
