package codec

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"image"
	"testing"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// TestShortFrameHeaders: a JPEG whose frame header says that it has more components than it has, or
// that ends there, is an error.
func TestShortFrameHeaders(t *testing.T) {
	whole := jpegOf(t, picture(40, 30), 90)
	sof := bytes.Index(whole, []byte{0xff, markerSOF0})
	for size := 2; size <= 17; size++ { // of the header, its length included
		for _, components := range []byte{1, 3, 4} {
			short := bytes.Clone(whole)
			binary.BigEndian.PutUint16(short[sof+2:], uint16(size))
			short[sof+9] = components
			for cut := sof + 2; cut <= sof+2+17; cut++ {
				var d Decoder
				var m pixels.Image
				if _, err := d.Decode(&m, short[:cut], Want{}); err == nil || !known(err) {
					t.Errorf("a header of %d bytes with %d components, cut at %d: %v", size,
						components, cut-sof-2, err)
				}
				d.Close()
			}
		}
	}
}

// orientationOf returns the orientation from EXIF data, 1 if they have none.
func orientationOf(exif []byte) int {
	orientation, _ := exifOrientation(exif)
	return orientation
}

// TestInvalidEXIFHasNoOrientation: EXIF data whose directory lies beyond them, or is cut, have no
// orientation.
func TestInvalidEXIFHasNoOrientation(t *testing.T) {
	for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
		mark := map[bool]string{
			true:  "II*\x00",
			false: "MM\x00*",
		}[order == binary.AppendByteOrder(binary.LittleEndian)]
		exif := func(directory, entries uint32) []byte {
			b := order.AppendUint32([]byte(mark), directory)
			b = order.AppendUint16(b, uint16(entries))
			b = order.AppendUint16(order.AppendUint16(b, 0x0112), 3) // orientation, short
			b = order.AppendUint32(b, 1)
			return order.AppendUint32(b, map[bool]uint32{true: 6, false: 6 << 16}[mark[0] == 'I'])
		}
		if got := orientationOf(exif(8, 1)); got != 6 {
			t.Errorf("%q: orientation %d, want 6", mark, got)
		}
		whole := exif(8, 60000)
		for n := range whole {
			if got := orientationOf(whole[:n]); got != 1 {
				t.Errorf("%q: orientation %d of %d bytes", mark, got, n)
			}
		}
		for _, directory := range []uint32{
			9, 20, 21, 22, 23, 1 << 16, 1<<31 - 1, 1 << 31,
			1<<32 - 1,
		} {
			if got := orientationOf(exif(directory, 1)); got != 1 {
				t.Errorf("%q: orientation %d of a directory at %d", mark, got, directory)
			}
		}
	}
}

// TestTooLongPalettesAreErrors: a palette of more than 256 colours, or of a part of one, is an
// error.
func TestTooLongPalettesAreErrors(t *testing.T) {
	sound := pngOf(t, image.NewPaletted(image.Rect(0, 0, 40, 30), grays(256)))
	for size, ok := range map[int]bool{
		3 * 256:   true,
		3*256 + 3: false,
		3*256 - 1: false,
		3 * 10000: false,
		0:         false,
	} {
		src := withChunk(sound, "PLTE", false, make([]byte, size))
		var d Decoder
		var m pixels.Image
		if _, err := d.Decode(&m, src, Want{}); (err == nil) != ok || err != nil && !known(err) {
			t.Errorf("a palette of %d bytes: %v", size, err)
		}
		d.Close()
	}
}

// TestPNGDoesNotDependOnTheLast: the result of a PNG does not depend on those decoded before it,
// for all filters; in particular the row above its first one is 0.
func TestPNGDoesNotDependOnTheLast(t *testing.T) {
	noise := rawPNG(t, 300, 40, 8, pngRGB, func(y int) byte { return byte(y % 5) })
	var used Decoder
	defer used.Close()
	var a, b pixels.Image
	for _, kind := range []byte{pngGray, pngRGB, pngGrayAlpha, pngRGBA} {
		for _, depth := range []byte{8, 16} {
			for filter := range byte(6) {
				src := rawPNG(t, 31, 9, depth, kind, func(y int) byte { return filter })
				if _, err := used.Decode(&a, noise, Want{}); err != nil {
					t.Fatal(err)
				}
				var fresh Decoder
				what := fmt.Sprintf("colour type %d of %d bits, filter %d", kind, depth, filter)
				_, err := used.Decode(&a, src, Want{})
				_, other := fresh.Decode(&b, src, Want{})
				fresh.Close()
				if filter > 4 {
					if err == nil || other == nil {
						t.Errorf("%s: %v, %v", what, err, other)
					}
					continue
				}
				if err != nil || other != nil {
					t.Fatal(what, err, other)
				}
				var reference pixels.Image
				if err := decodePNGGo(&reference, src, &Header{Format: PNG, Width: 31, Height: 9},
					Want{}); err != nil {
					t.Fatal(what, err)
				}
				if !bytes.Equal(a.Pix, reference.Pix) || !bytes.Equal(b.Pix, reference.Pix) {
					t.Errorf("%s: other pixels than Go's decoder has", what)
				}
			}
		}
	}
}

// TestWebPDataAfterItsEndIsIgnored: what lies after the end that a file gives itself is no part of
// it.
func TestWebPDataAfterItsEndIsIgnored(t *testing.T) {
	for _, name := range []string{"lossy", "lossless", "simple-filter"} {
		src := read(t, "testdata", name+".webp")
		if !hasPrefix(src, 12, "VP8") || hasPrefix(src, 12, "VP8X") {
			t.Fatalf("%s is of another kind", name)
		}
		for _, keep := range []int{len(src) / 2, len(src) * 3 / 4} {
			short := bytes.Clone(src)
			binary.LittleEndian.PutUint32(short[4:], uint32(keep-8))   // the file
			binary.LittleEndian.PutUint32(short[16:], uint32(keep-20)) // and its pixels
			var d Decoder
			var m pixels.Image
			for _, want := range []Want{{}, {Region: image.Rect(0, 0, 8, 8)}} {
				_, err := d.Decode(&m, short, want)
				_, cut := d.Decode(&m, short[:keep], want)
				if (err == nil) != (cut == nil) || want.Region.Empty() && err == nil {
					t.Errorf("%s of %d bytes that says it has %d, %v: %v, and cut there: %v", name,
						len(src), keep, want.Region, err, cut)
				}
			}
			d.Close()
		}
	}
}
