package codec

import (
	"errors"
	"image"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// corners are small parts of an image, for which most of a file is not decoded.
func corners(h *Header) []image.Rectangle {
	w, ht := (h.Width+3)/4, (h.Height+3)/4
	return []image.Rectangle{
		image.Rect(0, 0, w, ht), image.Rect(h.Width-w, h.Height-ht, h.Width, h.Height),
	}
}

// TestDamageIsSeenWhateverIsDecoded: with Whole, a file is refused exactly if PIL refuses it, for
// any part of the image.
func TestDamageIsSeenWhateverIsDecoded(t *testing.T) {
	if !jpegExact {
		t.Skip("only libjpeg and libwebp report damage as PIL does")
	}
	dir, cases := references(t)
	var d Decoder
	defer d.Close()
	var m pixels.Image
	unseen := 0
	for _, c := range cases {
		src := read(t, dir, c.File)
		h, err := d.Header(src)
		if err != nil || overfull(c.Name) || strings.Contains(c.Name, "pixels beyond") {
			continue
		}
		for _, region := range corners(&h) {
			if _, err := d.Decode(&m, src, Want{Region: region}); err == nil && c.Error != "" {
				unseen++
			}
			_, err := d.Decode(&m, src, Want{Region: region, Whole: true})
			if (err != nil) != (c.Error != "") {
				t.Errorf("%s, %v: %v, and PIL: %q", c.Name, region, err, c.Error)
			}
		}
	}
	if unseen == 0 {
		t.Error("no damage that is not seen without Whole")
	}
}

// FuzzWhole: with Whole, whether a file is refused does not depend on what is decoded of it.
func FuzzWhole(f *testing.F) {
	seeds(f)
	d := Decoder{MaxPixels: 1 << 18}
	defer d.Close()
	var m pixels.Image
	f.Fuzz(func(t *testing.T, src []byte) {
		h, err := d.Header(src)
		if err != nil {
			return
		}
		_, all := d.Decode(&m, src, Want{Whole: true})
		for _, region := range corners(&h) {
			for _, gray := range []bool{false, true} {
				_, err := d.Decode(&m, src, Want{Whole: true, Region: region, Gray: gray})
				if (err == nil) != (all == nil) {
					t.Fatalf("%v, gray %v: %v, and the whole image: %v", region, gray, err, all)
				}
			}
		}
	})
}

// TestWholeFitsMemory: a WebP of which only a part fits into all the memory that there is is
// decoded as without Whole.
func TestWholeFitsMemory(t *testing.T) {
	if !jpegExact {
		t.Skip("builds without cgo decode WebPs to the end")
	}
	src := read(t, "testdata", "lossy.webp")
	var d Decoder
	defer d.Close()
	h, err := d.Header(src)
	if err != nil {
		t.Fatal(err)
	}
	var m pixels.Image
	part := Want{Region: corners(&h)[0], Whole: true}
	if _, err := d.Decode(&m, src, Want{Region: part.Region}); err != nil {
		t.Fatal(err)
	}
	d.Memory = d.Taken()
	d.MostMemory = d.Memory
	_, err = d.Decode(&m, src, part)
	if e := (*MemoryError)(nil); errors.As(err, &e) {
		t.Errorf("a part: %v", err)
	}
}

// TestIncompleteProgressive: an image is complete once each component's first coefficients are.
func TestIncompleteProgressive(t *testing.T) {
	dir, cases := references(t)
	var d Decoder
	defer d.Close()
	seen := map[bool]int{}
	for _, c := range cases {
		if !strings.Contains(c.Name, "scans of") {
			continue
		}
		h, err := d.Header(read(t, dir, c.File))
		if err != nil || !h.Progressive {
			t.Fatalf("%s: %+v, %v", c.Name, h, err)
		}
		if want := strings.HasSuffix(c.Name, "incomplete"); h.Incomplete != want {
			t.Errorf("%s: incomplete %v", c.Name, h.Incomplete)
		}
		seen[h.Incomplete]++
	}
	if seen[true] == 0 || seen[false] == 0 {
		t.Errorf("%v", seen)
	}
}
