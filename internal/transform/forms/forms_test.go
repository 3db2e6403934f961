package forms

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/transform/codec"
	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

func read(t testing.TB, path ...string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// jpegs are JPEGs that have forms, by their names in the codec's tests.
var jpegs = []string{"restart-1", "restart-gray", "410", "scans", "restart-progressive"}

func jpegNamed(t testing.TB, name string) []byte {
	t.Helper()
	return read(t, "..", "codec", "testdata", name+".jpg")
}

// converted returns forms made earlier, which every release reads, of jpegs.
func converted(t testing.TB, name string) []byte {
	t.Helper()
	return read(t, "testdata", name+".form")
}

func picture(width, height int) image.Image {
	m := image.NewNRGBA(image.Rect(0, 0, width, height))
	for y := range height {
		for x := range width {
			m.Set(x, y, color.NRGBA{byte(x * 7), byte(y*5 + x), byte(x * y), 255})
		}
	}
	return m
}

// TestFormsOfEarlierReleases: forms in testdata give the pixels and bytes of their JPEGs, and are
// what Convert makes.
func TestFormsOfEarlierReleases(t *testing.T) {
	var c Converter
	defer c.Close()
	var d codec.Decoder
	defer d.Close()
	for _, name := range slices.Concat(jpegs, others) {
		form := converted(t, name)
		src := sampleNamed(t, name)
		info, err := Read(form)
		if err != nil || Check(form) != nil || info.Size != int64(len(src)) {
			t.Fatalf("%s: %+v, %v, %v", name, info, err, Check(form))
		}
		wantKind := Exact
		if slices.Contains(others, name) {
			wantKind = Decoded
		} else if name == "scans" || name == "restart-progressive" {
			wantKind = Pixels
		}
		restored, err := c.Restore([]byte("before"), form)
		switch {
		case info.Kind != wantKind:
			t.Errorf("%s: %v", name, info.Kind)
		case wantKind != Pixels && (err != nil || string(restored) != "before"+string(src)):
			t.Errorf("%s: %v, or other bytes", name, err)
		case wantKind == Pixels && (!errors.Is(err, codec.ErrNotPacked) || len(restored) != 6):
			t.Errorf("%s: %v", name, err)
		}
		if name != "restart-progressive" || canConvert { // image/jpeg refuses the JPEG
			compare(t, name, &d, src, form)
		}
		again, err := c.Convert([]byte("before"), src)
		makes := canConvert || wantKind == Decoded
		if makes && (err != nil || string(again) != "before"+string(form)) {
			t.Errorf("%s: %v, or another form of %d instead of %d bytes", name, err, len(again)-6,
				len(form))
		}
	}
}

// compare compares headers, and pixels of regions at all scales.
func compare(t *testing.T, name string, d *codec.Decoder, src, form []byte) {
	t.Helper()
	h, err := d.Header(src)
	other, wrong := Header(d, form)
	if err != nil || wrong != nil || h != other {
		t.Errorf("%s: %+v, %v; %+v, %v", name, h, err, other, wrong)
	}
	var want, got pixels.Image
	for _, scale := range []int{8, 4, 2, 1} {
		w, ht := codec.ScaledSize(h.Format, h.Width, h.Height, scale)
		for _, region := range []image.Rectangle{
			{},
			image.Rect(w/3, ht/4, (2*w+2)/3, (3*ht+3)/4), image.Rect(w-1, 0, w, ht),
			image.Rect(0, ht-1, w, ht),
		} {
			request := codec.Want{Scale: scale, Region: region}
			origin, err := d.Decode(&want, src, request)
			at, wrong := Decode(d, &got, form, request)
			if err != nil || wrong != nil {
				t.Errorf("%s, %+v: %v, %v", name, request, err, wrong)
				continue
			}
			if region.Empty() {
				region = want.Bounds()
			}
			a, b := want.Sub(region.Sub(origin)), got.Sub(region.Sub(at))
			if !samePixels(&a, &b) {
				t.Errorf("%s, %+v: other pixels", name, request)
			}
		}
	}
}

// TestAlteredForms: a change of any byte is found.
func TestAlteredForms(t *testing.T) {
	for _, name := range []string{"restart-1", "small.png"} {
		t.Run(name, func(t *testing.T) { testAltered(t, converted(t, name)) })
	}
}

func testAltered(t *testing.T, form []byte) {
	var c Converter
	defer c.Close()
	for i := range form {
		altered := bytes.Clone(form)
		altered[i] ^= 0x10
		want := ErrDamaged
		if i == len(magic) {
			want = ErrVersion
		}
		// The rest of the fixed part that the digest does not cover has no meaning.
		covered := i < 5 || i >= digestAt || (isDecoded(form) || isPrefix(form)) && i == 5
		if err := Check(altered); covered && !errors.Is(err, want) {
			t.Fatalf("byte %d: %v", i, err)
		}
		if _, err := c.Restore(nil, altered); covered && !errors.Is(err, want) {
			t.Fatalf("byte %d: %v", i, err)
		}
	}
	for n := range form {
		if err := Check(form[:n]); !errors.Is(err, ErrDamaged) {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
	if err := Check(append(bytes.Clone(form), 0)); !errors.Is(err, ErrDamaged) {
		t.Errorf("a byte more: %v", err)
	}
	newer := bytes.Clone(form)
	newer[len(magic)] = version + 1
	const says = "compact form of another version: 2, and this release reads 1"
	if err := Check(newer); fmt.Sprint(err) != says {
		t.Errorf("%v", err)
	}
}

// TestStaysAsRead: what has no form, and why.
func TestStaysAsRead(t *testing.T) {
	if !canConvert {
		t.Skip("builds without cgo make no forms")
	}
	var noisy bytes.Buffer
	if err := jpeg.Encode(&noisy, picture(70, 50), &jpeg.Options{Quality: 90}); err != nil {
		t.Fatal(err)
	}
	whole := noisy.Bytes()
	scan := bytes.Index(whole, []byte{0xff, 0xda})
	cmyk := bytes.Clone(whole)
	frame := bytes.Index(whole, []byte{0xff, 0xc0})
	cmyk[frame+9] = 4
	altered := bytes.Clone(whole)
	for i := scan + 50; i < len(altered)-2; i += 7 {
		altered[i] = 0x55
	}
	// A resolution of one letter in the EXIF data, of which PIL makes nothing or an error.
	exif := "Exif\x00\x00MM\x00*\x00\x00\x00\x08\x00\x01" +
		"\x01\x1a\x00\x02\x00\x00\x00\x02a\x00\x00\x00" + "\x00\x00\x00\x00"
	odd := append([]byte{0xff, 0xd8, 0xff, 0xe1, 0, byte(len(exif) + 2)}, exif...)
	odd = append(odd, jpegNamed(t, "restart-progressive")[2:]...)
	tiny := jpegNamed(t, "gray-22")
	var c Converter
	defer c.Close()
	for _, test := range []struct {
		name, says string
		src        []byte
	}{
		{"CMYK", "CMYK", cmyk},
		{"arithmetic", "arithmetic coding", jpegNamed(t, "arithmetic")},
		{"cut", "damaged", whole[:len(whole)*2/3]},
		{"without an end", "damaged", whole[:len(whole)-2]},
		{"altered", "", altered},
		{"cut progressive", "incomplete", jpegNamed(t, "restart-progressive")[:900]},
		{"odd", "beside its pixels", odd},
	} {
		dst, err := c.Convert([]byte("before"), test.src)
		if !errors.Is(err, codec.ErrNotPacked) || !strings.Contains(err.Error(), test.says) ||
			string(dst) != "before" {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	if _, err := c.Convert(nil, []byte("GIF89a")); !errors.Is(err, codec.ErrFormat) {
		t.Errorf("GIF: %v", err)
	}
	if form, err := c.Convert(nil, tiny); err == nil && len(form) > len(tiny)*3/2 {
		t.Errorf("%d bytes for %d", len(form), len(tiny))
	}
	var small bytes.Buffer
	if err := jpeg.Encode(&small, image.NewGray(image.Rect(0, 0, 2000, 8)), nil); err != nil {
		t.Fatal(err)
	}
	src := bytes.Clone(small.Bytes())
	if form, err := c.Convert(nil, src); err == nil && len(form) > len(src)*3/2 {
		t.Errorf("%d bytes for %d", len(form), len(src))
	}
}
