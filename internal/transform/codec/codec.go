// Package codec decodes images as PIL's Image.open(...).convert("RGB") does: JPEG, PNG and WebP,
// with C libraries in builds with cgo (libjpeg-turbo, libdeflate, libwebp), and with Go's decoders
// otherwise. Formats are recognized by content, never by file name.
//
// A Decoder decodes only what a Want requests: the rows and columns of a region, as far as the
// format allows, and a JPEG at full size or, by DCT scaling, at a reduced size. The result for a
// region is bit for bit that of a full decode. A Decoder is not safe for concurrent use, reuses its
// memory, and must be closed to free C memory.
//
// Decoding does not allocate in steady state, with two exceptions. Go's decoders allocate the
// image; they are used in builds without cgo, and for interlaced and damaged PNGs. libwebp
// allocates and frees its memory on the C heap for each image.
//
// Invalid input results in a typed error, before memory is allocated if the header is invalid; it
// never ends the process. Package pixels defines the images. Cropping and resizing are not part of
// this package.
package codec

import (
	"errors"
	"fmt"
	"image"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// The kinds of errors. All errors of this package, except MemoryError, are Errors that wrap one of
// these.
var (
	ErrFormat      = errors.New("not a JPEG, PNG or WebP image")
	ErrUnsupported = errors.New("unsupported image")
	ErrCorrupt     = errors.New("corrupt image")
	ErrTruncated   = errors.New("truncated image")
	ErrTooLarge    = errors.New("image has too many pixels")
	ErrAnimated    = errors.New("animated image")
	ErrNotPacked   = errors.New("no compact form") // of Pack and Unpack
)

// Error describes why an image cannot be decoded.
type Error struct {
	Kind error  // one of the above
	Why  string // details, possibly from the decoder; may be empty
}

func (e *Error) Error() string {
	if e.Why == "" {
		return e.Kind.Error()
	}
	return e.Kind.Error() + ": " + e.Why
}

func (e *Error) Unwrap() error { return e.Kind }

func fail(kind error, format string, args ...any) error {
	return &Error{kind, fmt.Sprintf(format, args...)}
}

// MaxPixels is the default limit on an image's pixels: twice PIL's Image.MAX_IMAGE_PIXELS, above
// which PIL refuses an image as a decompression bomb.
const MaxPixels = 2 * WarnPixels

// WarnPixels is the number of pixels above which PIL warns of a decompression bomb: a quarter of 1
// GiB at 3 bytes per pixel.
const WarnPixels = 1024 * 1024 * 1024 / 4 / 3

// Format is a compressed image's format.
type Format uint8

// Formats.
const (
	JPEG Format = iota + 1
	PNG
	WebP
)

func (f Format) String() string {
	if f < JPEG || f > WebP {
		return "unknown"
	}
	return [...]string{"JPEG", "PNG", "WebP"}[f-1]
}

// Header holds the properties of an image that precede its pixels in the file.
type Header struct {
	Format        Format
	Width, Height int // as stored: Orientation is not applied
	Orientation   int // of EXIF or XMP, 1 to 8; 1 where there is none
	Channels      int // as stored: 1 gray, 3 colour (alpha is not counted), 4 CMYK
	Progressive   bool
	Animated      bool // a PNG with several images
	Transparent   bool // a PNG that names colours, or entries of its palette, which are transparent
	// Incomplete is set for a progressive JPEG whose scans leave some of the first coefficients
	// incomplete. They are estimated, and releases of libjpeg-turbo differ in how: this package's
	// result may differ from that of an installed Pillow by several grey levels.
	Incomplete bool
	// Odd is set if PIL may refuse the image for what the file says beside its pixels, whose
	// decoding is not concerned: a segment or chunk that ends too early or inflates to more than
	// PIL takes, an animation out of order, or bytes between segments. It is also set if PIL may
	// take the pixels of a PNG for those of a smaller first frame.
	Odd bool

	frame int  // offset of the content of a JPEG's frame header
	mode  Mode // of a PNG or a WebP
}

// Mode is the mode in which PIL opens an image, without a conversion.
type Mode uint8

// Modes. An image of OtherMode may be of any, also RGB or L.
const (
	OtherMode Mode = iota
	RGB
	L
)

// Mode returns the mode in which PIL opens the image.
func (h *Header) Mode() Mode {
	switch {
	case h.Format == JPEG && h.Channels == 1:
		return L
	case h.Format == JPEG && h.Channels == 3:
		return RGB
	}
	return h.mode
}

// Oriented returns the size after applying Orientation.
func (h *Header) Oriented() (width, height int) {
	if h.Orientation >= 5 {
		return h.Height, h.Width
	}
	return h.Width, h.Height
}

// Large reports whether PIL would warn of a decompression bomb.
func (h *Header) Large() bool { return int64(h.Width)*int64(h.Height) > WarnPixels }

// Want describes what to decode of an image.
type Want struct {
	Gray bool // one channel, as PIL's convert("L"); otherwise three, as convert("RGB")
	raw  bool // the numbers of the file (DecodeRaw)
	// packed, if not nil, has the coefficients of the JPEG (DecodePacked).
	packed *Packed
	// decoded, if not nil, has the pixels of the PNG or WebP (DecodeFrom).
	decoded *pixels.Image
	// Orient applies Header.Orientation, as PIL's ImageOps.exif_transpose. Sizes and regions then
	// refer to the oriented image.
	Orient bool
	// Scale decodes a JPEG at Scale eighths of its size (8, 4, 2 or 1; 0 is 8), rounded up: a cheap
	// reduction in the DCT domain, as PIL's draft. Other formats ignore it, as PIL does. See
	// ScaledSize.
	Scale int
	// Region is the part to decode, in the scaled and oriented image. Empty means all of it.
	Region image.Rectangle
	// Whole makes damage anywhere in the file an error, also where Region does not need it: the
	// file is decoded to its end, as far as its structure does not show that it is sound. Whether
	// there is an error is then a function of src alone. Without it, what Region does not need of a
	// JPEG or a WebP is not looked at. A WebP that fits MostMemory only in part is decoded as
	// without Whole.
	Whole bool
}

// ScaledSize returns the size of a width x height image of that format at scale eighths.
func ScaledSize(f Format, width, height, scale int) (w, h int) {
	if f != JPEG || scale == 0 {
		return width, height
	}
	return (width*scale + 7) / 8, (height*scale + 7) / 8
}

// Decoder decodes images. It is not safe for concurrent use. The zero value is ready to use.
type Decoder struct {
	// MaxPixels is the limit on an image's pixels; 0 means the constant of that name.
	MaxPixels int64
	// Memory is how many bytes Decode may use at a time, including the result. For an image that
	// needs more, Decode returns a MemoryError before it allocates them. 0: no limit.
	Memory int64
	// MostMemory is the largest value that Memory could have: an image that needs more is decoded
	// in a slower way that needs less, if there is one. 0: no limit. The pixels are the same.
	MostMemory int64

	taken   int64
	jpeg    jpegDecoder
	png     pngDecoder
	scratch pixels.Image // an image before it is oriented
	cmyk    pixels.Image // an image before its colours are converted

	inflater inflater
}

// Close frees the Decoder's C memory. The Decoder can be used again.
func (d *Decoder) Close() {
	d.jpeg.close()
	d.png.close()
}

// MostKept is the largest size in bytes of an image whose buffers are kept for the next image.
// Larger buffers are allocated for each image.
const MostKept = 64 << 20

// Drop frees all memory that is kept between images, except for the state of the C libraries.
func (d *Decoder) Drop() {
	d.png.drop()
	d.scratch, d.cmyk = pixels.Image{}, pixels.Image{}
}

// Kept returns how many bytes are kept between images.
func (d *Decoder) Kept() int64 { return d.png.kept() + int64(cap(d.scratch.Pix)+cap(d.cmyk.Pix)) }

// Trim frees buffers of more than MostKept bytes, and reports whether there were any.
func (d *Decoder) Trim() bool {
	large := d.png.trim()
	for _, m := range []*pixels.Image{&d.scratch, &d.cmyk} {
		if cap(m.Pix) > MostKept {
			*m, large = pixels.Image{}, true
		}
	}
	return large
}

// Header reads an image's header. It does not read the pixels, which may be corrupt or missing.
func (d *Decoder) Header(src []byte) (Header, error) {
	h, err := d.header(src)
	if err != nil {
		return Header{}, err
	}
	if h.Width <= 0 || h.Height <= 0 {
		return Header{}, fail(ErrCorrupt, "%v of %d x %d pixels", h.Format, h.Width, h.Height)
	}
	limit := d.MaxPixels
	if limit == 0 {
		limit = MaxPixels
	}
	if int64(h.Width)*int64(h.Height) > limit {
		return Header{}, fail(ErrTooLarge, "%v of %d x %d pixels, and the limit is %d; to raise it, "+
			"begin the transforms with hdmlp.transforms.ImgDecode(max_pixels=%d), or set "+
			"PIL.Image.MAX_IMAGE_PIXELS, of which the limit is twice as much", h.Format, h.Width,
			h.Height, limit, int64(h.Width)*int64(h.Height))
	}
	return h, nil
}

func (d *Decoder) header(src []byte) (Header, error) {
	switch {
	case len(src) == 0:
		return Header{}, fail(ErrFormat, "empty")
	case IsJPEG(src):
		return jpegHeader(src)
	case hasPrefix(src, 0, pngSignature):
		return pngHeader(src, &d.inflater)
	case hasPrefix(src, 0, "RIFF") && hasPrefix(src, 8, "WEBP"):
		return webpHeader(src)
	}
	for _, known := range others {
		if hasPrefix(src, 0, known.prefix) {
			return Header{}, fail(ErrFormat, "a %s; %s", known.name, byPillow)
		}
	}
	return Header{}, fail(ErrFormat, "starts with % x", src[:min(len(src), 8)])
}

// byPillow is advice on an image that Pillow decodes.
const byPillow = "the daemon does not decode it: convert the file, or have Pillow decode it in " +
	"the process, by hdmlp.torch.DataLoader with torchvision's transforms and without share="

// others lists prefixes of images in formats that only PIL decodes: those that torchvision accepts
// as samples, and those with the extension of a JPEG.
var others = []struct{ prefix, name string }{
	{"GIF8", "GIF"},
	{"BM", "BMP"},
	{"II*\x00", "TIFF"},
	{"MM\x00*", "TIFF"},
	{"P5", "PGM"},
	{"P6", "PPM"},
}

// IsJPEG reports whether an image is taken for a JPEG.
func IsJPEG(src []byte) bool { return hasPrefix(src, 0, "\xff\xd8\xff") }

func hasPrefix(src []byte, at int, prefix string) bool {
	return len(src) >= at+len(prefix) && string(src[at:at+len(prefix)]) == prefix
}

// Decode decodes src into dst, which then holds at least the region of want; origin is the position
// of dst's first pixel in the whole image (scaled and oriented). On error the contents of dst are
// unspecified.
func (d *Decoder) Decode(dst *pixels.Image, src []byte, want Want) (origin image.Point, err error) {
	d.taken = 0
	h, err := d.Header(src)
	if err != nil {
		return origin, err
	}
	return d.decode(dst, src, &h, want)
}

// decode is Decode once the header, which it changes, is known.
func (d *Decoder) decode(
	dst *pixels.Image, src []byte, h *Header, want Want,
) (origin image.Point, err error) {
	if !want.Orient {
		h.Orientation = 1
	}
	if want.raw {
		h.Channels = 1
	}
	switch want.Scale {
	case 0, 8:
		want.Scale = 8
	case 1, 2, 4:
	default:
		panic(fmt.Sprintf("codec: scale %d", want.Scale))
	}
	w, ht := ScaledSize(h.Format, h.Width, h.Height, want.Scale)
	region := image.Rect(0, 0, w, ht) // as stored
	if !want.Region.Empty() {
		all := region
		if h.Orientation >= 5 {
			all.Max = image.Pt(ht, w)
		}
		if !want.Region.In(all) {
			panic(fmt.Sprintf("codec: region %v of %v", want.Region, all))
		}
		region = stored(want.Region, h.Orientation, w, ht)
	}
	into := dst
	if h.Orientation != 1 {
		into = &d.scratch
	}
	switch {
	case want.decoded != nil:
		origin, err = d.copyDecoded(into, h, want, region)
	case h.Format == JPEG:
		origin, err = d.decodeJPEG(into, src, h, want, region)
	case h.Format == PNG:
		origin, err = d.decodePNG(into, src, h, want, region)
	case h.Format == WebP:
		origin, err = d.decodeWebP(into, src, h, want, region)
	}
	if err != nil || h.Orientation == 1 {
		return origin, err
	}
	orient(dst, into, h.Orientation)
	covered := image.Rectangle{origin, origin.Add(image.Pt(into.Width, into.Height))}
	return oriented(covered, h.Orientation, w, ht).Min, nil
}

// guarded calls one of Go's decoders. It converts a panic to an error, because a file that makes a
// decoder panic is invalid, and it checks that the image has the size of its header, which some
// formats do not guarantee.
func guarded(h *Header, dst *pixels.Image, decode func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fail(ErrCorrupt, "the decoder panicked: %v", p)
		}
	}()
	if err := decode(); err != nil {
		return err
	}
	if h.Format != JPEG && (dst.Width != h.Width || dst.Height != h.Height) {
		return fail(ErrCorrupt, "%v of %d x %d pixels whose header says %d x %d",
			h.Format, dst.Width, dst.Height, h.Width, h.Height)
	}
	return nil
}

// Eighths returns the size, in eighths, at which an image of a size is decoded to be resized: the
// smallest that leaves it sufficiently larger than its resized size.
func Eighths(size, resized image.Point) int {
	for _, n := range []int{1, 2, 4} {
		if 2*size.X*n >= enough(n)*resized.X && 2*size.Y*n >= enough(n)*resized.Y {
			return n
		}
	}
	return 8
}

// enough returns how many times as large, in sixteenths, an image decoded at n eighths must be as
// its resized size. These factors give 45 dB for photographs with the default filter: the DCT's
// reduction differs from all of PIL's filters, the more the smaller n is. Twice as large gives 40
// to 44 dB, the same size 30 to 40; a larger factor at a half would cost most of the gain.
func enough(n int) int {
	switch n {
	case 4:
		return 33
	case 2:
		return 36
	}
	return 40
}
