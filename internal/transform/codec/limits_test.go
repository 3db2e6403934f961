package codec

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"image"
	"image/color"
	"image/color/palette"
	"image/draw"
	"image/gif"
	"image/jpeg"
	"image/png"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// picture returns a w x h picture with all frequencies in it.
func picture(w, h int) *image.NRGBA {
	m := image.NewNRGBA(image.Rect(0, 0, w, h))
	r := rand.New(rand.NewPCG(uint64(w), uint64(h)))
	for y := range h {
		for x := range w {
			v := byte(x*3 + y*2 + r.IntN(40))
			m.SetNRGBA(x, y, color.NRGBA{v, v / 2, byte(y) ^ v, 255})
		}
	}
	return m
}

func jpegOf(tb testing.TB, m image.Image, quality int) []byte {
	tb.Helper()
	var b bytes.Buffer
	if err := jpeg.Encode(&b, m, &jpeg.Options{Quality: quality}); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

func pngOf(tb testing.TB, m image.Image) []byte {
	tb.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// claiming returns a JPEG or PNG whose header has another size.
func claiming(src []byte, w, h int) []byte {
	src = bytes.Clone(src)
	if at := bytes.Index(src, []byte{0xff, 0xc0}); hasPrefix(src, 0, "\xff\xd8") {
		binary.BigEndian.PutUint16(src[at+5:], uint16(h))
		binary.BigEndian.PutUint16(src[at+7:], uint16(w))
		return src
	}
	binary.BigEndian.PutUint32(src[16:], uint32(w))
	binary.BigEndian.PutUint32(src[20:], uint32(h))
	binary.BigEndian.PutUint32(src[29:], crc32.ChecksumIEEE(src[12:29]))
	return src
}

// TestBadInput: whatever comes, an error of the right kind describes it.
func TestBadInput(t *testing.T) {
	whole, wholePNG := jpegOf(t, picture(40, 30), 90), pngOf(t, picture(40, 30))
	var aGIF bytes.Buffer
	if err := gif.Encode(&aGIF, picture(4, 4), nil); err != nil {
		t.Fatal(err)
	}
	animated := "RIFF\x2a\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x02\x00\x00\x00" +
		strings.Repeat("\x00", 30)
	twelve := bytes.Clone(whole)
	twelve[bytes.Index(twelve, []byte{0xff, 0xc0})+4] = 12
	for _, c := range []struct {
		name string
		src  []byte
		kind error
		says string
	}{
		{"nothing", nil, ErrFormat, "empty"},
		{"text", []byte("<html>not found</html>"), ErrFormat, "3c 68"},
		{"a GIF", aGIF.Bytes(), ErrFormat, "a GIF; " + byPillow},
		{"a TIFF", []byte("II*\x00\x08\x00\x00\x00"), ErrFormat, "a TIFF;"},
		{"a PPM", []byte("P6\n1 1\n255\nabc"), ErrFormat, "a PPM;"},
		{"an animated WebP", []byte(animated), ErrAnimated, "WebP"},
		{"two bytes of JPEG", whole[:2], ErrFormat, ""},
		{"a JPEG without pixels", whole[:100], ErrTruncated, ""},
		{"half a JPEG", whole[:len(whole)/2], ErrTruncated, ""},
		{"half a PNG", wholePNG[:len(wholePNG)/2], ErrTruncated, ""},
		{"a PNG's signature", wholePNG[:8], ErrTruncated, ""},
		{"a JPEG of no rows", claiming(whole, 40, 0), ErrCorrupt, "40 x 0"},
		{"a PNG of no columns", claiming(wholePNG, 0, 30), ErrCorrupt, "0 x 30"},
		{"a JPEG bomb", claiming(whole, 65000, 65000), ErrTooLarge, "65000 x 65000"},
		{"a PNG bomb", claiming(wholePNG, 1<<30, 1<<30), ErrTooLarge, "the limit is 178956970"},
		{"a PNG that cannot be so large", claiming(wholePNG, 13000, 13000), ErrTruncated, "13000"},
		{"a JPEG of 12 bits", twelve, ErrUnsupported, "12 bits"},
		{
			"a JPEG without tables",
			append([]byte("\xff\xd8"), whole[bytes.Index(whole, []byte{0xff, 0xc0}):]...),
			ErrCorrupt, "",
		},
	} {
		var d Decoder
		var m pixels.Image
		_, err := d.Decode(&m, c.src, Want{})
		if c.name == "a JPEG without tables" && !jpegExact {
			continue // image/jpeg takes them as 0
		}
		if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, and should be %v with %q", c.name, err, c.kind, c.says)
		}
		// The same decoder goes on.
		if _, err := d.Decode(&m, whole, Want{}); err != nil {
			t.Errorf("after %s: %v", c.name, err)
		}
		d.Close()
	}
}

// TestLimit: the limit on pixels is the caller's.
func TestLimit(t *testing.T) {
	src := jpegOf(t, picture(40, 30), 90)
	d := Decoder{MaxPixels: 1199}
	defer d.Close()
	if _, err := d.Header(src); !errors.Is(err, ErrTooLarge) {
		t.Errorf("1200 pixels, and the limit is 1199: %v", err)
	}
	d.MaxPixels = 1200
	if _, err := d.Header(src); err != nil {
		t.Error(err)
	}
}

// TestNoAllocations: decoding allocates nothing once the Decoder has seen the largest image.
func TestNoAllocations(t *testing.T) {
	if !jpegExact {
		t.Skip("Go's decoders allocate")
	}
	m := picture(500, 375)
	paletted := image.NewPaletted(m.Bounds(), palette.WebSafe)
	draw.Draw(paletted, m.Bounds(), m, image.Point{}, draw.Src)
	for name, src := range map[string][]byte{
		"JPEG": jpegOf(t, m, 90), "PNG": pngOf(t, m), "PNG with a palette": pngOf(t, paletted),
		"PNG in chunks": inChunks(t, pngOf(t, m), 8192),
		"lossy WebP":    read(t, "testdata", "lossy.webp"),
		"lossless WebP": read(t, "testdata", "lossless.webp"),
	} {
		var d Decoder
		var m pixels.Image
		for _, want := range []Want{
			{},
			{Gray: true},
			{Region: image.Rect(20, 10, 50, 40)},
			{Scale: 4},
			{Orient: true},
		} {
			if n := testing.AllocsPerRun(10, func() {
				if _, err := d.Decode(&m, src, want); err != nil {
					t.Fatal(err)
				}
			}); n != 0 {
				t.Errorf("%s, %+v: %v allocations", name, want, n)
			}
		}
		d.Close()
	}
}

// inChunks returns a PNG of one chunk of pixels with that chunk in parts of n bytes.
func inChunks(t testing.TB, src []byte, n int) []byte {
	t.Helper()
	at := bytes.Index(src, []byte("IDAT")) - 4
	kind, body, next := pngChunk(src, at)
	if string(kind) != "IDAT" || len(body) <= n {
		t.Fatalf("chunk %q of %d bytes", kind, len(body))
	}
	parts := bytes.Clone(src[:at])
	for part := range slices.Chunk(body, n) {
		from := len(parts) + 4
		parts = binary.BigEndian.AppendUint32(parts, uint32(len(part)))
		parts = append(append(parts, "IDAT"...), part...)
		parts = binary.BigEndian.AppendUint32(parts, crc32.ChecksumIEEE(parts[from:]))
	}
	return append(parts, src[next:]...)
}

// withChunk returns a PNG with another body in place of its first chunk of the kind, or with a
// chunk of the kind after its header.
func withChunk(src []byte, kind string, after bool, body []byte) []byte {
	at := bytes.Index(src, []byte(kind)) - 4
	_, _, next := pngChunk(src, at)
	if after {
		at = next
	}
	out := binary.BigEndian.AppendUint32(bytes.Clone(src[:at]), uint32(len(body)))
	out = append(append(out, kind...), body...)
	out = binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(out[at+4:]))
	return append(out, src[next:]...)
}

// TestShortPalette: a PNG one of whose pixels has no colour in the palette is refused, whatever
// part is wanted.
func TestShortPalette(t *testing.T) {
	r := image.Rect(0, 0, 40, 30)
	for _, colours := range []int{2, 4, 16, 200} {
		all := color.Palette{}
		for i := range colours {
			all = append(all, color.NRGBA{byte(i), byte(255 - i), byte(3 * i), 255})
		}
		for _, corner := range []image.Point{{0, 0}, {39, 0}, {0, 29}, {39, 29}, {20, 15}} {
			m := image.NewPaletted(r, all)
			m.SetColorIndex(corner.X, corner.Y, uint8(colours-1))
			sound := pngOf(t, m)
			_, plte, _ := pngChunk(sound, bytes.Index(sound, []byte("PLTE"))-4)
			short := withChunk(sound, "PLTE", false, plte[:len(plte)-3])
			for _, region := range []image.Rectangle{
				{},
				r, image.Rect(1, 1, 2, 2),
				image.Rect(30, 20, 39, 29),
			} {
				var d Decoder
				var got pixels.Image
				if _, err := d.Decode(&got, sound, Want{Region: region}); err != nil {
					t.Errorf("%d colours, region %v: %v", colours, region, err)
				}
				_, err := d.Decode(&got, short, Want{Region: region})
				if !errors.Is(err, ErrUnsupported) ||
					!strings.Contains(err.Error(), byPillow) {
					t.Errorf("a pixel beyond %d colours at %v, region %v: %v", colours-1, corner,
						region, err)
				}
				d.Close()
			}
			if err := decodePNGGo(new(pixels.Image), short,
				&Header{Format: PNG, Width: 40, Height: 30}, Want{}); !errors.Is(err,
				ErrUnsupported) {
				t.Errorf("a pixel beyond %d colours, by Go's decoder: %v", colours-1, err)
			}
		}
	}
}

// TestSecondHeader: PIL uses a PNG's last header, and refuses pixels that do not fit it.
func TestSecondHeader(t *testing.T) {
	src := pngOf(t, picture(9, 7))
	_, header, _ := pngChunk(src, len(pngSignature))
	other := bytes.Clone(header)
	other[9] = pngGray
	for name, second := range map[string][]byte{
		"the same":    header,
		"another":     other,
		"a short one": header[:12],
	} {
		var d Decoder
		var m pixels.Image
		if _, err := d.Decode(&m, withChunk(src, "IHDR", true, second),
			Want{}); !errors.Is(err, ErrCorrupt) ||
			!strings.Contains(err.Error(), "second header") {
			t.Errorf("%s: %v", name, err)
		}
		d.Close()
	}
}

// resident returns the process's resident memory in bytes.
func resident(t *testing.T) int64 {
	t.Helper()
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skip(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(b))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// TestSoak: memory does not grow with the number of samples, sound or not, nor with that of
// Decoders. HDMLP_SOAK is the number of rounds.
func TestSoak(t *testing.T) {
	rounds := 20
	if !jpegExact {
		rounds = 5 // without cgo all memory is the collector's
	}
	if s := os.Getenv("HDMLP_SOAK"); s != "" {
		var err error
		if rounds, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	var files [][]byte
	for _, size := range []int{64, 333, 500} {
		src := jpegOf(t, picture(size, size*3/4), 92)
		bad := bytes.Clone(src)
		for i := len(bad) / 2; i < len(bad)/2+20; i++ {
			bad[i] ^= 0x5a
		}
		files = append(files, src, bad, src[:len(src)*2/3], claiming(src, size*2, size),
			pngOf(t, picture(size/2, size/2)))
	}
	bad := pngOf(t, picture(64, 64))
	bad[len(bad)/2] ^= 0x5a
	files = append(files, bad)
	for _, name := range []string{"lossy", "lossless", "alpha"} {
		src := read(t, "testdata", name+".webp")
		files = append(files, src,
			append(bytes.Clone(src[:len(src)/2]), make([]byte, len(src)-len(src)/2)...))
	}
	var m pixels.Image
	r := rand.New(rand.NewPCG(5, 6))
	round := func() {
		var d Decoder
		defer d.Close()
		for range 10 {
			for _, src := range files {
				h, err := d.Header(src)
				if err != nil {
					t.Fatal(err)
				}
				x, y := r.IntN(h.Width), r.IntN(h.Height)
				want := Want{
					Region: image.Rect(x, y, x+1+r.IntN(h.Width-x), y+1+r.IntN(h.Height-y)),
				}
				_, _ = d.Decode(&m, src, want) // some are damaged
			}
		}
	}
	for range 5 {
		round()
	}
	debug.FreeOSMemory()
	before := resident(t)
	for range rounds {
		round()
	}
	debug.FreeOSMemory()
	if grown := resident(t) - before; grown > 8<<20 && !sanitized {
		t.Errorf("%d rounds took %d bytes that they did not give back", rounds, grown)
	} else {
		t.Logf("%d images: %+d bytes", rounds*10*len(files), grown)
	}
}

// TestTrim: a decoder frees the buffer in which a huge image was brought to another orientation.
func TestTrim(t *testing.T) {
	var d Decoder
	defer d.Close()
	var m pixels.Image
	for _, c := range []struct {
		side  int
		large bool
	}{{300, false}, {5000, true}, {300, false}} {
		src := turned(jpegOf(t, image.NewGray(image.Rect(0, 0, c.side, c.side)), 60))
		if _, err := d.Decode(&m, src, Want{Orient: true}); err != nil || cap(d.scratch.Pix) == 0 {
			t.Fatal(err)
		}
		if large := d.Trim(); large != c.large || cap(d.scratch.Pix) > MostKept {
			t.Errorf("%d x %d: %v, and %d bytes are kept", c.side, c.side, large,
				cap(d.scratch.Pix))
		}
	}
}

// turned is a JPEG whose EXIF segment has it turned, as one of a camera that was held upright.
func turned(jpeg []byte) []byte {
	const exif = "\xff\xe1\x00\x22Exif\x00\x00MM\x00*\x00\x00\x00\x08\x00\x01" +
		"\x01\x12\x00\x03\x00\x00\x00\x01\x00\x06\x00\x00\x00\x00\x00\x00"
	return slices.Concat(jpeg[:2], []byte(exif), jpeg[2:])
}
