package forms

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"image"
	"image/color"
	"image/png"
	"slices"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/transform/codec"
	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// others are images that have Decoded forms, by name: WebPs of the codec's tests, and a PNG.
var others = []string{"lossy.webp", "lossless.webp", "alpha.webp", "small.png"}

func otherNamed(t testing.TB, name string) []byte {
	t.Helper()
	if name == "small.png" {
		return read(t, "testdata", name)
	}
	return read(t, "..", "codec", "testdata", name)
}

func sampleNamed(t testing.TB, name string) []byte {
	t.Helper()
	if slices.Contains(others, name) {
		return otherNamed(t, name)
	}
	return jpegNamed(t, name)
}

func samePixels(a, b *pixels.Image) bool {
	if a.Bounds() != b.Bounds() || a.Channels != b.Channels {
		return false
	}
	for y := range a.Height {
		if !bytes.Equal(a.Row(y), b.Row(y)) {
			return false
		}
	}
	return true
}

func encoded(t testing.TB, m image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// withChunk returns a PNG with another chunk after its header.
func withChunk(src []byte, kind, body string) []byte {
	const after = 33
	chunk := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
	chunk = append(append(chunk, kind...), body...)
	chunk = binary.BigEndian.AppendUint32(chunk, crc32.ChecksumIEEE(chunk[4:]))
	return slices.Concat(src[:after], chunk, src[after:])
}

// TestKindsOfPNGs: the form has as many channels as the pixels need, and gives the pixels of all
// kinds of PNGs.
func TestKindsOfPNGs(t *testing.T) {
	const w, h = 23, 17
	r := image.Rect(0, 0, w, h)
	gray, gray16 := image.NewGray(r), image.NewGray16(r)
	rgba, rgba64 := image.NewNRGBA(r), image.NewNRGBA64(r)
	palette := image.NewPaletted(r, color.Palette{
		color.Gray{3}, color.NRGBA{9, 8, 7, 255}, color.NRGBA{200, 100, 1, 30},
	})
	for y := range h {
		for x := range w {
			gray.SetGray(x, y, color.Gray{byte(x * y)})
			gray16.SetGray16(x, y, color.Gray16{uint16(x * y)})
			rgba.SetNRGBA(x, y, color.NRGBA{byte(x * 9), byte(y * 11), byte(x + y), byte(x * 11)})
			rgba64.Set(x, y, color.NRGBA64{uint16(x * 2900), uint16(y), 9, uint16(y * 3800)})
			palette.SetColorIndex(x, y, byte((x+y)%3))
		}
	}
	var c Converter
	defer c.Close()
	var d codec.Decoder
	defer d.Close()
	for name, test := range map[string]struct {
		src      []byte
		channels int
	}{
		"gray":    {encoded(t, gray), 1},
		"16 bits": {encoded(t, gray16), 1},
		"RGB":     {encoded(t, picture(w, h)), 3},
		"RGBA":    {encoded(t, rgba), 3},
		"RGBA64":  {encoded(t, rgba64), 3},
		"palette": {encoded(t, palette), 3},
		"turned":  {withChunk(encoded(t, rgba), "eXIf", turned), 3},
	} {
		form, err := c.Convert(nil, test.src)
		if size := fixedDecoded + len(test.src) + w*h*test.channels; err != nil ||
			len(form) != size || c.Size(test.src) != int64(size) {
			t.Errorf("%s: %d bytes instead of %d, of at most %d: %v", name, len(form), size,
				c.Size(test.src), err)
			continue
		}
		compare(t, name, &d, test.src, form)
		if again, err := c.Restore(nil, form); err != nil || !bytes.Equal(again, test.src) {
			t.Errorf("%s: %v, or other bytes", name, err)
		}
	}
}

// turned is EXIF data with an orientation of 6.
const turned = "MM\x00*\x00\x00\x00\x08\x00\x01" +
	"\x01\x12\x00\x03\x00\x00\x00\x01\x00\x06\x00\x00" + "\x00\x00\x00\x00"

// TestTurnedViews: pixels that are turned, or get or lose channels, do not lie in the form.
func TestTurnedViews(t *testing.T) {
	src := withChunk(encoded(t, picture(23, 17)), "eXIf", turned)
	var c Converter
	defer c.Close()
	form, err := c.Convert(nil, src)
	if err != nil {
		t.Fatal(err)
	}
	var d codec.Decoder
	defer d.Close()
	region := image.Rect(3, 5, 9, 11)
	for _, test := range []struct {
		want codec.Want
		ok   bool
	}{
		{codec.Want{Region: region}, true},
		{codec.Want{Region: region, Whole: true, Scale: 4}, true},
		{codec.Want{Region: region, Orient: true}, false},
		{codec.Want{Region: region, Gray: true}, false},
	} {
		if _, ok, err := View(&d, form, test.want); ok != test.ok || err != nil {
			t.Errorf("%+v: %v, %v", test.want, ok, err)
		}
	}
	if _, ok, err := View(&d, converted(t, "410"), codec.Want{Region: region}); ok || err != nil {
		t.Errorf("a JPEG: %v, %v", ok, err)
	}
	d.MaxPixels = 9
	if _, _, err := View(&d, form, codec.Want{Region: region}); !errors.Is(err, codec.ErrTooLarge) {
		t.Errorf("of more pixels than allowed: %v", err)
	}
}

// TestOthersStayAsRead: what is no JPEG and has no form, and why.
func TestOthersStayAsRead(t *testing.T) {
	whole := encoded(t, picture(70, 50))
	altered := bytes.Clone(whole)
	altered[len(altered)/2] ^= 0x55
	webp := otherNamed(t, "lossy.webp")
	animated := bytes.Clone(otherNamed(t, "alpha.webp"))
	animated[20] |= 2
	c := Converter{Memory: 3 << 20}
	defer c.Close()
	for _, test := range []struct {
		name string
		kind error
		src  []byte
		size bool // its header says how large a form would be
	}{
		{"cut", codec.ErrTruncated, whole[:len(whole)*2/3], true},
		{"altered", codec.ErrCorrupt, altered, true},
		{"odd", codec.ErrNotPacked, withChunk(whole, "pHYs", "short"), false},
		{"cut WebP", codec.ErrTruncated, webp[:len(webp)-9], true},
		{"animated WebP", codec.ErrAnimated, animated, false},
		{"GIF", codec.ErrFormat, []byte("GIF89a"), false},
		{"empty", codec.ErrFormat, nil, false},
	} {
		dst, err := c.Convert([]byte("before"), test.src)
		if !errors.Is(err, test.kind) || string(dst) != "before" {
			t.Errorf("%s: %v", test.name, err)
		}
		if size := c.Size(test.src); (size > 0) != test.size {
			t.Errorf("%s: size %d", test.name, size)
		}
	}
	large := encoded(t, image.NewGray(image.Rect(0, 0, 2000, 2000)))
	var e *codec.MemoryError
	if _, err := c.Convert(nil, large); !errors.As(err, &e) {
		t.Errorf("more than its memory: %v", err)
	}
	if !strings.Contains(fmt.Sprint(Decoded), "decoded") ||
		fmt.Sprint(Transformed+1) != "unknown (6)" {
		t.Errorf("%v, %v", Decoded, Transformed+1)
	}
}
