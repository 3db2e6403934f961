//go:build cgo

package codec

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"image"
	"image/color/palette"
	"image/draw"
	"io"
	"runtime"
	"testing"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// hugePNG is a gray PNG whose pixels are as good as all the same, so that it is a thousandth of
// their size.
func hugePNG(t *testing.T, side int) []byte {
	t.Helper()
	chunk := func(to []byte, kind string, body []byte) []byte {
		to = binary.BigEndian.AppendUint32(to, uint32(len(body)))
		from := len(to)
		to = append(append(to, kind...), body...)
		return binary.BigEndian.AppendUint32(to, crc32.ChecksumIEEE(to[from:]))
	}
	header := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, uint32(side)),
		uint32(side))
	header = append(header, 8, pngGray, 0, 0, 0)
	var packed bytes.Buffer
	z, err := zlib.NewWriterLevel(&packed, zlib.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	row := make([]byte, side+1)
	for y := range side {
		row[1] = byte(y) // filter 0
		_, _ = z.Write(row)
	}
	_ = z.Close()
	return chunk(chunk(chunk([]byte(pngSignature), "IHDR", header), "IDAT", packed.Bytes()), "IEND",
		nil)
}

// TestHugePNG: a crop of a PNG that compresses well takes memory for the crop, and not for all
// rows.
func TestHugePNG(t *testing.T) {
	const side = 18000
	src := hugePNG(t, side)
	var d Decoder
	defer d.Close()
	var m pixels.Image
	d.MaxPixels = side * side
	region := image.Rect(0, side-100, 50, side-20)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := d.Decode(&m, src, Want{Region: region}); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	// the runtime allocates beside it, more so where all is slow
	if took := after.TotalAlloc - before.TotalAlloc; took > 8<<20 || int64(took) > d.Taken()+2<<20 {
		t.Errorf("%d bytes were allocated for %v of %d x %d pixels; said were %d", took, region,
			side, side, d.Taken())
	}
	for y := range m.Height {
		if row := m.Row(y); row[0] != byte(region.Min.Y+y) || row[2] != row[0] || row[3] != 0 {
			t.Fatalf("row %d is % x", y, row[:6])
		}
	}
}

// TestPNGInPieces: rows that are inflated a few at a time become what they do all at once, of sound
// and of damaged files.
func TestPNGInPieces(t *testing.T) {
	colours := picture(700, 900)
	paletted := image.NewPaletted(colours.Bounds(), palette.WebSafe)
	draw.Draw(paletted, colours.Bounds(), colours, image.Point{}, draw.Src)
	gray, deep := image.NewGray(colours.Bounds()), image.NewNRGBA64(colours.Bounds())
	draw.Draw(gray, colours.Bounds(), colours, image.Point{}, draw.Src)
	draw.Draw(deep, colours.Bounds(), colours, image.Point{}, draw.Src)
	for i := 6; i < len(deep.Pix); i += 8 * 7 { // alpha, so that it is written
		deep.Pix[i] = 7
	}
	sound := pngOf(t, colours)
	files := map[string][]byte{
		"RGB": sound, "chunks": inChunks(t, sound, 1000), "palette": pngOf(t, paletted),
		"gray":    pngOf(t, gray),
		"16 bits": pngOf(t, deep), "checksum missing": bytes.Clone(sound),
		"half": bytes.Clone(sound), "damaged": bytes.Clone(sound),
		"wrong checksum": bytes.Clone(sound),
	}
	iend := len(sound) - 12
	files["checksum missing"] = resized(t, sound, -4)
	files["half"] = resized(t, sound, -(iend / 2))
	files["damaged"][len(sound)/2] ^= 0x40
	files["wrong checksum"][iend-5] ^= 1
	for name, src := range files {
		var whole, pieces Decoder
		var a, b pixels.Image
		h, err := whole.Header(src)
		if err != nil {
			t.Fatal(err)
		}
		for _, region := range []image.Rectangle{
			{Max: image.Pt(700, 900)},
			image.Rect(100, 300, 400, 650), image.Rect(699, 899, 700, 900),
		} {
			for _, toGray := range []bool{false, true} {
				ok := whole.png.decode(&a, src, &h, toGray, region)
				if got := pieces.png.decodeRows(&b, src, &h, toGray, region); got != ok {
					t.Errorf("%s, %v: taken %v, and all at once %v", name, region, got, ok)
				} else if ok && !bytes.Equal(a.Pix, b.Pix) {
					t.Errorf("%s, %v: pixels differ", name, region)
				}
			}
		}
		whole.Close()
		pieces.Close()
	}
}

// resized is a PNG of one chunk of pixels with that many bytes more, or less, in it.
func resized(t *testing.T, src []byte, by int) []byte {
	t.Helper()
	at := bytes.Index(src, []byte("IDAT")) - 4
	_, body, next := pngChunk(src, at)
	if next != len(src)-12 {
		return resized(t, oneChunk(t, src), by)
	}
	out := binary.BigEndian.AppendUint32(bytes.Clone(src[:at]), uint32(len(body)+by))
	out = append(append(out, "IDAT"...), body[:len(body)+by]...)
	out = binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(out[at+4:]))
	return append(out, src[next:]...)
}

// oneChunk is a PNG with all its pixels in one chunk.
func oneChunk(t *testing.T, src []byte) []byte {
	t.Helper()
	at := bytes.Index(src, []byte("IDAT")) - 4
	body, err := io.ReadAll(&pngChunks{src: src, at: at})
	if err != nil {
		t.Fatal(err)
	}
	out := binary.BigEndian.AppendUint32(bytes.Clone(src[:at]), uint32(len(body)))
	out = append(append(out, "IDAT"...), body...)
	out = binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(out[at+4:]))
	return append(out, src[len(src)-12:]...)
}

// TestMemoryLimit: an image that needs more than the decoder may take is refused before it takes
// it, with what it needs, and decoded where it gets that.
func TestMemoryLimit(t *testing.T) {
	colours := picture(1500, 1000)
	for name, c := range map[string]struct {
		src   []byte
		least int64 // beside the result
	}{
		"JPEG": {jpegOf(t, colours, 80), 0}, "PNG": {pngOf(t, colours), 3 * 1500 * 1000},
		"progressive JPEG":      {read(t, "testdata", "restart-progressive.jpg"), 1},
		"JPEG of several scans": {read(t, "testdata", "scans.jpg"), 1},
		"lossless WebP":         {read(t, "testdata", "lossless.webp"), 1},
		"lossy WebP":            {read(t, "testdata", "lossy.webp"), 1},
	} {
		var d Decoder
		var m pixels.Image
		d.Memory = 1000
		var short *MemoryError
		for range 20 {
			_, err := d.Decode(&m, c.src, Want{})
			if !errors.As(err, &short) {
				if err != nil {
					t.Errorf("%s with %d bytes: %v", name, d.Memory, err)
				}
				break
			}
			if m.Pix != nil || short.Need <= d.Memory {
				t.Errorf("%s: %d bytes are said to be needed, where %d are there, and the "+
					"result has %d", name, short.Need, d.Memory, len(m.Pix))
			}
			d.Memory = short.Need
		}
		if short == nil || short.Need < int64(len(m.Pix))+c.least {
			t.Errorf("%s: %v, for a result of %d bytes", name, short, len(m.Pix))
		}
		d.Close()
	}
}

// TestWebPTaken: libwebp's own memory is counted.
func TestWebPTaken(t *testing.T) {
	src := read(t, "testdata", "lossless.webp")
	var d Decoder
	var m pixels.Image
	if _, err := d.Decode(&m, src, Want{}); err != nil {
		t.Fatal(err)
	}
	if d.Taken() < int64(m.Width*m.Height*(3+4)) {
		t.Errorf("%d x %d pixels: taken %d", m.Width, m.Height, d.Taken())
	}
}

// TestWebPTables: what libwebp takes for a lossless image's tables, which only its pixels tell of,
// is limited as well.
func TestWebPTables(t *testing.T) {
	src := tableWebP(64, 1000) // of some 10 KB each
	var d Decoder
	defer d.Close()
	var m pixels.Image
	if _, err := d.Decode(&m, src, Want{}); err != nil {
		t.Fatal(err)
	}
	need := d.Taken()
	if need < 6<<20 {
		t.Fatalf("%d bytes of memory for %d of file", need, len(src))
	}
	d.Memory, d.MostMemory = 3<<20, 64<<20
	var short *MemoryError
	if _, err := d.Decode(&m, src, Want{}); !errors.As(err, &short) || short.Need <= d.Memory {
		t.Fatalf("with %d bytes of %d: %v", d.Memory, need, err)
	}
	if d.Taken() > d.Memory {
		t.Errorf("%d bytes were taken, where %d are there", d.Taken(), d.Memory)
	}
	for d.Memory < short.Need {
		d.Memory = short.Need
		if _, err := d.Decode(&m, src, Want{}); err != nil && !errors.As(err, &short) {
			t.Fatal(err)
		}
	}
}
