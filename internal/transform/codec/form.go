package codec

import (
	"image"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// Packed is a JPEG whose coefficients are packed such that decoding a region takes about half the
// time (form.h describes them). Package forms keeps it as bytes.
type Packed struct {
	// Header is the JPEG as read, up to and including the header of its first scan.
	Header []byte
	// Head takes the place of Header when the pixels are decoded; if empty, Header does itself.
	// A JPEG with several scans has one, for its coefficients as a single scan.
	Head []byte
	Body []byte // the coefficients
	Tail []byte // what follows the scan, as read
	// ScanSize is the size in bytes of the scan, which Body gives exactly. It is 0 if Body gives
	// the pixels alone: the JPEG has several scans.
	ScanSize int
	Ones     bool // the bits that fill the last byte before a marker are ones
}

// damagedForm is the error's text for a body that Pack cannot have made.
const damagedForm = "the compact form is damaged"

// head returns the JPEG's beginning for the decoder.
func (p *Packed) head() []byte {
	if len(p.Head) > 0 {
		return p.Head
	}
	return p.Header
}

// Pack packs a JPEG into dst, whose memory it uses. It checks that the result gives the JPEG's
// coefficients and, where there is one scan, its bytes.
//
// Images of other formats, and JPEGs that are damaged, incomplete, odd (Header.Odd), of CMYK
// colours, arithmetically coded, or whose Body would have more than limit bytes, result in an Error
// of ErrNotPacked that says why. Decode of src need not fail then. Other errors are those of
// Header.
func (d *Decoder) Pack(dst *Packed, src []byte, limit int) error {
	d.taken = 0
	h, err := d.Header(src)
	switch {
	case err != nil:
		return err
	case h.Format != JPEG:
		return fail(ErrNotPacked, "a %v", h.Format)
	case h.Channels == 4:
		return fail(ErrNotPacked, "CMYK")
	case h.Incomplete:
		return fail(ErrNotPacked, "an incomplete progressive JPEG")
	case h.Odd: // it is left to PIL, which needs the file each time
		return fail(ErrNotPacked, "what the file says beside its pixels may make PIL refuse it")
	}
	return d.pack(dst, src, &h, max(limit, 0))
}

// packBuffers returns how many bytes Pack uses: coefficients, and a mask and class for each block.
func packBuffers(h *Header) int64 {
	const perCoefficient, perBlock = 2, 16
	most := int64(h.Width+64) * int64(h.Height+64) * int64(h.Channels)
	n := most*perCoefficient + most/64*perBlock
	if h.Progressive {
		n += most * perCoefficient // libjpeg's
	}
	return n
}

// PackedHeader returns what Header returns for the JPEG of which p was made.
func (d *Decoder) PackedHeader(p *Packed) (Header, error) {
	h, err := d.Header(p.Header)
	h.Incomplete = false // Pack refuses them; p.Header lacks the scans, which would show it
	return h, err
}

// DecodePacked decodes p as Decode does the JPEG of which it was made, bit for bit. There is no
// damage for Want.Whole to find in the JPEG. A damaged p results in an Error, or in other pixels:
// the caller has checked a digest.
func (d *Decoder) DecodePacked(dst *pixels.Image, p *Packed, want Want) (image.Point, error) {
	d.taken = 0
	original, err := d.PackedHeader(p)
	if err != nil {
		return image.Point{}, err
	}
	h, err := d.Header(p.head())
	if err != nil {
		return image.Point{}, err
	}
	if h.Format != JPEG || h.Channels == 4 || h.Progressive ||
		h.Width != original.Width || h.Height != original.Height ||
		h.Channels != original.Channels {
		return image.Point{}, fail(ErrCorrupt, "%s", damagedForm)
	}
	h.Orientation = original.Orientation
	want.packed = p
	return d.decode(dst, p.head(), &h, want)
}

// Unpack appends the JPEG of which p was made. If p gives the pixels alone, the error is of
// ErrNotPacked.
func (d *Decoder) Unpack(dst []byte, p *Packed) ([]byte, error) {
	if p.ScanSize == 0 {
		return dst, fail(ErrNotPacked, "the form of a JPEG with several scans gives its pixels alone")
	}
	begin := len(dst)
	dst, err := d.appendScan(append(dst, p.Header...), p)
	if err != nil {
		return dst[:begin], err
	}
	return append(dst, p.Tail...), nil
}
