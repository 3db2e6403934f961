package codec

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"testing"
)

// tags is TIFF data with a directory of these tags, each of 12 bytes, in the byte order of "II".
func tags(all ...string) string {
	data := []byte("II*\x00\x08\x00\x00\x00")
	data = binary.LittleEndian.AppendUint16(data, uint16(len(all)))
	for _, tag := range all {
		data = append(data, tag...)
	}
	return string(data) + "\x00\x00\x00\x00"
}

// Tags that PIL reads when it opens a JPEG: number, type, how many values, values.
const (
	unitInch   = "\x28\x01\x03\x00\x01\x00\x00\x00\x02\x00\x00\x00"
	resolution = "\x1a\x01\x03\x00\x01\x00\x00\x00\x48\x00\x00\x00"
	inText     = "\x1a\x01\x02\x00\x02\x00\x00\x005\x00\x00\x00"
	inLongText = "\x1a\x01\x02\x00\x03\x00\x00\x0072\x00\x00"
	inBytes    = "\x1a\x01\x07\x00\x01\x00\x00\x00\x48\x00\x00\x00"
	outside    = "\x0f\x01\x02\x00\x10\x00\x00\x00\xff\xff\x00\x00" // a maker
	maker      = "\x0f\x01\x02\x00\x02\x00\x00\x005\x00\x00\x00"
	oneImage   = "\x01\xb0\x04\x00\x01\x00\x00\x00\x01\x00\x00\x00"
	twoImages  = "\x01\xb0\x04\x00\x01\x00\x00\x00\x02\x00\x00\x00"
	oneEntry   = "\x02\xb0\x07\x00\x10\x00\x00\x00\x00\x00\x00\x00"
	twoEntries = "\x02\xb0\x07\x00\x20\x00\x00\x00\x00\x00\x00\x00"
)

// TestOddJPEGs: whether some release of PIL refuses a JPEG for its EXIF data or its table of
// images, tried with 9.4, 10.4, 11.3, 12.0 and 13.0.
func TestOddJPEGs(t *testing.T) {
	segment := func(marker byte, body string) string {
		size := binary.BigEndian.AppendUint16([]byte{0xff, marker}, uint16(len(body)+2))
		return string(size) + body
	}
	const exif = "Exif\x00\x00"
	app1 := func(data string) string { return segment(markerAPP1, exif+data) }
	digit := tags(unitInch, inText)
	images := func(all ...string) string { return segment(markerAPP2, "MPF\x00"+tags(all...)) }
	for _, c := range []struct {
		name, segments string
		odd            bool
	}{
		{"no EXIF", "", false},
		{"a marker without a length", "\xff\x01", true},
		{"a marker that is none", "\xff\xbf\x00\x02", true},
		{"a comment of no length", "\xff\xfe\x00\x00", false},
		{"half a version", segment(markerAPP0, "JFIF\x00\x01"), true},
		{"a version", segment(markerAPP0, "JFIF\x00\x01\x01"), false},
		{"a profile's number", segment(markerAPP2, "ICC_PROFILE\x00\x01"), true},
		{"and count", segment(markerAPP2, "ICC_PROFILE\x00\x01\x01"), false},
		{"half of Adobe's version", segment(markerAPP14, "Adobe\x00"), true},
		{"Adobe's version", segment(markerAPP14, "Adobe\x00\x64"), false},
		{"empty EXIF", app1(""), false},
		{"no TIFF", app1("XX*\x00\x08\x00"), false},
		{"half a magic number", app1("II*"), false},
		{"no offset", app1("II*\x00"), true},
		{"half an offset", app1("MM\x00*\x00\x00\x00"), true},
		{"an offset", app1("MM\x00*\x00\x00\x00\x08"), false},
		{"marked twice", app1(exif + "II*\x00"), true},
		{"BigTIFF", app1("II+\x00\x08\x00\x00\x00"), true},
		{"BigTIFF, big-endian", app1("MM\x00+"), true},
		{"a resolution", app1(tags(unitInch, resolution)), false},
		{"of a digit", app1(digit), true},
		{"of two digits", app1(tags(unitInch, inLongText)), false},
		{"a maker of a digit", app1(tags(unitInch, maker, resolution)), false},
		{"of a byte", app1(tags(inBytes, unitInch)), true},
		{"after a tag that lies outside", app1(tags(outside, unitInch, inText)), true},
		{"in the second segment", app1("") + app1(digit), true},
		{"the first of two segments", app1("II*\x00") + app1("\x08\x00\x00\x00\x00\x00"), true},
		{"in two segments", app1(digit[:9]) + app1(digit[9:]), true},
		{"an image", images(oneImage, oneEntry), false},
		{"two images", images(twoImages, twoEntries), false},
		{"an entry for two images", images(twoImages, oneEntry), true},
		{"an entry first", images(oneEntry, twoImages), true},
		{"no entries", images(twoImages), false},
		{"entries without a number", images(oneEntry), false},
	} {
		src := "\xff\xd8" + c.segments + segment(markerSOF0, "\x08\x00\x01\x00\x01\x01\x01\x11\x00") +
			segment(markerSOS, "\x01\x01\x00\x00\x3f\x00")
		var d Decoder
		if h, err := d.Header([]byte(src)); err != nil || h.Odd != c.odd {
			t.Errorf("%s: %v, %v", c.name, h.Odd, err)
		}
	}
}

// TestOrientationAfterOtherTags: reading ends at a tag whose values lie outside of the data, and
// one with more values than there are data is passed over.
func TestOrientationAfterOtherTags(t *testing.T) {
	const (
		turned  = "\x12\x01\x03\x00\x01\x00\x00\x00\x06\x00\x00\x00"
		none    = "\x12\x01\x03\x00\x00\x00\x00\x00\x03\x00\x00\x00"
		beyond  = "\x12\x01\x03\x00\x04\x00\x00\x00\xff\xff\x00\x00"
		inside  = "\x0f\x01\x02\x00\x08\x00\x00\x00\x00\x00\x00\x00"
		huge    = "\x0f\x01\x02\x00\x00\x00\x10\x00\x00\x00\x00\x00"
		badType = "\x0f\x01\x20\x00\x01\x00\x00\x00\xff\xff\x00\x00"
		noType  = "\x0f\x01\x0e\x00\x01\x00\x00\x00\xff\xff\x00\x00"
	)
	for _, c := range []struct {
		tags []string
		want int
	}{
		{[]string{turned}, 6},
		{[]string{inside, turned}, 6},
		{[]string{huge, turned}, 6},
		{[]string{noType, turned}, 6},
		{[]string{badType, turned}, 6},
		{[]string{none, turned}, 6},
		{[]string{outside, turned}, 1},
		{[]string{beyond, turned}, 1},
		{[]string{inside, inside, inside, inside, inside, inside, inside, outside, turned}, 1},
		{[]string{none}, 1},
	} {
		if got := orientationOf([]byte(tags(c.tags...))); got != c.want {
			t.Errorf("%q: orientation %d, want %d", c.tags, got, c.want)
		}
	}
}

// TestOddPNGs: whether some release of PIL refuses a PNG for a chunk, or takes it for a frame.
func TestOddPNGs(t *testing.T) {
	// frame is the body of a fcTL: number, width, height, left, top.
	frame := func(side ...uint32) []byte {
		var body []byte
		for _, n := range side {
			body = binary.BigEndian.AppendUint32(body, n)
		}
		return append(body, 0, 1, 0, 1, 0, 0)
	}
	packed := func(head string, size int) []byte {
		var out bytes.Buffer
		out.WriteString(head)
		z := zlib.NewWriter(&out)
		if _, err := z.Write(make([]byte, size)); err != nil || z.Close() != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	const width, height = 4, 3
	for _, c := range []struct {
		name, kind    string
		colour        byte
		body          []byte
		before, after bool // whether it is odd before, and after, the pixels
	}{
		{"no transparent gray", "tRNS", pngGray, make([]byte, 1), true, true},
		{"a transparent gray", "tRNS", pngGray, make([]byte, 2), false, false},
		{"no transparent colour", "tRNS", pngRGB, make([]byte, 5), true, true},
		{"a transparent colour", "tRNS", pngRGB, make([]byte, 6), false, false},
		{"nothing transparent", "tRNS", pngRGBA, nil, false, false},
		{"few chromaticities", "cHRM", pngRGB, make([]byte, 31), true, true},
		{"chromaticities", "cHRM", pngRGB, make([]byte, 32), false, false},
		{"a part of one", "cHRM", pngRGB, make([]byte, 33), true, true},
		{"more", "cHRM", pngRGB, make([]byte, 36), false, false},
		{"a text", "zTXt", pngRGB, packed("a\x00\x00", maxText-1), false, false},
		{"a long text", "zTXt", pngRGB, packed("a\x00\x00", maxText), true, true},
		{"another method", "zTXt", pngRGB, packed("a\x00\x07", 1), true, true},
		{"in UTF-8", "iTXt", pngRGB, packed("a\x00\x01\x00b\x00c\x00", maxText-1), false, false},
		{"long in UTF-8", "iTXt", pngRGB, packed("a\x00\x01\x00b\x00c\x00", maxText), true, true},
		{"not compressed", "iTXt", pngRGB, make([]byte, maxText+1), false, false},
		{"a profile", "iCCP", pngRGB, packed("a\x00\x00", maxText-1), false, false},
		{"a long profile", "iCCP", pngRGB, packed("a\x00\x00", maxText), true, true},
		{"no profile", "iCCP", pngRGB, []byte("a"), true, true},
		{"a frame", "fcTL", pngRGB, frame(0, width, height, 0, 0), false, false},
		{"a second frame", "fcTL", pngRGB, frame(1, width, height, 0, 0), true, true},
		{"a narrow frame", "fcTL", pngRGB, frame(0, width-1, height, 0, 0), true, false},
		{"a low frame", "fcTL", pngRGB, frame(0, width, height-1, 0, 0), true, false},
		{"a frame at the edge", "fcTL", pngRGB, frame(0, width-1, height, 1, 0), true, false},
		{"beyond it", "fcTL", pngRGB, frame(0, width-1, height, 2, 0), true, true},
		{"below it", "fcTL", pngRGB, frame(0, width, height, 0, 1), true, true},
		{"a frame's pixels, first", "fdAT", pngRGB, make([]byte, 4), true, true},
		{"no number", "fdAT", pngRGB, make([]byte, 3), true, true},
	} {
		whole := rawPNG(t, width, height, 8, c.colour, func(int) byte { return 0 })
		for _, place := range []struct {
			at  int
			odd bool
		}{{pngFirst, c.before}, {len(whole) - 12, c.after}} {
			src := append([]byte(nil), whole[:place.at]...)
			src = append(append(src, chunk(c.kind, c.body)...), whole[place.at:]...)
			var d Decoder
			if h, err := d.Header(src); err != nil || h.Odd != place.odd {
				t.Errorf("%s, at %d of %d: %v, %v", c.name, place.at, len(whole), h.Odd, err)
			}
		}
	}
}

// TestMendedPNGs: one that ends after its pixels is completed, and one that is whole is left alone.
func TestMendedPNGs(t *testing.T) {
	whole := rawPNG(t, 4, 3, 8, pngRGB, func(int) byte { return 0 })
	if got, cut := mended(whole); got != nil || cut {
		t.Errorf("the whole file: %d bytes, %v", len(got), cut)
	}
	for n := len(whole) - 16; n < len(whole); n++ { // the checksum of the pixels, and IEND
		if got, cut := mended(whole[:n]); !bytes.Equal(got, whole) || !cut {
			t.Errorf("%d of %d bytes: %d, %v", n, len(whole), len(got), cut)
		}
	}
	if got, cut := mended(whole[:pngFirst]); got != nil || !cut {
		t.Errorf("no pixels: %d bytes, %v", len(got), cut)
	}
}
