// Package forms keeps images in forms that take less time to be decoded.
//
// That of a JPEG takes about 1.1 times its bytes, and half the time: the coefficients that Huffman
// decoding gives, packed such that they can be unpacked in parallel (transform/codec/form.h has
// their layout). That of a PNG or a WebP is the file and its pixels (decoded.go). That of a sample
// of several fields holds each of them as read or in its form (record.go).
//
// A form gives the pixels of every region and scale bit for bit. All give the sample's bytes too,
// but for that of a progressive JPEG, or another one with several scans, which gives its pixels
// alone. What has no form stays as read: the error of Convert says why.
//
// A form is bytes, which are the same on all machines, with a version and a digest. A Converter is
// not safe for concurrent use; the other functions keep no state.
package forms

import (
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"math"

	"github.com/hdmlp/hdmlp/internal/lib/digest"
	"github.com/hdmlp/hdmlp/internal/transform/codec"
	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// Kind is how a sample's bytes are kept. Numbers are never used again for something else: what
// keeps samples keeps a Kind with each, and drops those of a Kind that it does not have.
type Kind uint8

// Kinds.
const (
	AsRead      Kind = iota // the sample's bytes
	Exact                   // a JPEG's form of version 1 that Restore takes
	Pixels                  // a JPEG's form of version 1 that gives the pixels alone
	Decoded                 // the file and the pixels of a PNG or a WebP, version 1
	Record                  // the fields of a sample of several, of which one has a form, version 1
	Transformed             // the file and the pixels that a Prefix makes of it, version 1
)

func (k Kind) String() string {
	if k > Transformed {
		return fmt.Sprintf("unknown (%d)", uint8(k))
	}
	return [...]string{
		"as read", "compact", "compact, pixels alone", "decoded", "fields", "transformed",
	}[k]
}

// version is that of the layout of forms and of bodies.
const version = 1

// most is how large a JPEG's form may be, in parts of the sample.
const (
	mostNumerator   = 3
	mostDenominator = 2
)

// mostPrefix is how many times the size of a JPEG its Prefix form may have. Small JPEGs, which are
// decoded in little time, have coefficients.
const mostPrefix = 16

// mostExpansion is more than a scan takes in bytes for one of a body: of a byte a block without
// coefficients gets 2 codes of up to 16 bits, stuffed, and a restart marker.
const mostExpansion = 16

// The kinds of errors of forms. All are wrapped.
var (
	ErrVersion = errors.New("compact form of another version")
	ErrDamaged = errors.New("damaged compact form")
)

// A JPEG's form is, with all numbers little-endian:
//
//	0   4 bytes  magic
//	4   1 byte   version
//	5   1 byte   flags
//	6   2 bytes  0
//	8   4 bytes  digest of what follows
//	12  4 bytes  digest of the sample
//	16  8 bytes  size of the sample
//	24  4 bytes  size of its scan; 0 if the form gives the pixels alone
//	28  4 bytes  size of the JPEG's header
//	32  4 bytes  size of the head for the decoder
//	36  4 bytes  size of what follows the scan
//	40           header, head, what follows the scan, body
const (
	magic      = "HDMJ"
	digestAt   = 8
	digestFrom = 12
	fixed      = 40

	flagOnes = 1 // codec.Packed.Ones
)

// Info describes a form.
type Info struct {
	Kind   Kind
	Size   int64  // of the sample, in bytes
	Digest uint32 // of the sample
}

// Converter makes forms, and samples of them. The zero value is ready to use; Close frees C memory.
type Converter struct {
	// Memory is how many bytes Convert may use for an image, besides the form; 0: no limit. One that
	// needs more is a codec.MemoryError.
	Memory int64
	// Makers make Transformed forms of images, by field of the samples; nil, or of no such field:
	// none are made. That of a PNG or a WebP takes the place of its Decoded one if it is smaller, and
	// that of a JPEG, if JPEGs is set, of its coefficients. What a Worker refuses has another form,
	// or none.
	Makers  []*Maker
	JPEGs   bool
	field   int    // of the sample that is converted
	again   []byte // the pixels of a WebP
	decoder codec.Decoder
	packed  codec.Packed
}

// maker returns the Maker of the field; nil: there is none.
func (c *Converter) maker() *Maker {
	if c.field < len(c.Makers) {
		return c.Makers[c.field]
	}
	return nil
}

// Close frees the Converter's C memory. The Converter can be used again.
func (c *Converter) Close() { c.decoder.Close() }

// Size returns how many bytes the form of src takes at most, as far as its header says; 0 if there
// is none.
func (c *Converter) Size(src []byte) int64 {
	c.decoder.Memory = c.Memory
	jpeg := codec.IsJPEG(src)
	if jpeg && (c.maker() == nil || !c.JPEGs) {
		return packedLimit(src)
	}
	h, err := c.decoder.Header(src)
	switch {
	case err != nil && jpeg:
		return packedLimit(src)
	case err != nil || h.Odd && !jpeg:
		return 0
	case c.prefers(src, &h):
		return prefixSize(int64(len(src)), &c.maker().Prefix)
	case jpeg:
		return packedLimit(src)
	}
	return decodedSize(len(src), h.Width, h.Height, channelsOf(&h))
}

// packedLimit returns how many bytes the coefficients of a JPEG may take.
func packedLimit(src []byte) int64 {
	return int64(len(src) / mostDenominator * mostNumerator)
}

// prefers reports whether a file with this header is to have a Prefix form.
func (c *Converter) prefers(src []byte, h *codec.Header) bool {
	p := c.maker()
	switch {
	case p == nil || h.Odd:
		return false
	case h.Format == codec.JPEG:
		return c.JPEGs && prefixSize(int64(len(src)), &p.Prefix) <= mostPrefix*int64(len(src))
	}
	return prefixSize(int64(len(src)), &p.Prefix) <
		decodedSize(len(src), h.Width, h.Height, channelsOf(h))
}

// Convert appends the form of src to dst, after it has checked that the form of a JPEG gives the
// same coefficients and, for Exact, bytes, and that a PNG or a WebP is sound to its end. That of a
// JPEG is at most 1.5 times as large. Where there is none, the error is of codec.ErrNotPacked, or
// that of codec.Decoder's Header, or, but for JPEGs, of Decode.
func (c *Converter) Convert(dst, src []byte) ([]byte, error) {
	c.decoder.Memory = c.Memory
	if c.maker() != nil {
		if h, err := c.decoder.Header(src); err == nil && c.prefers(src, &h) {
			if form, err := c.convertPrefix(dst, src, &h); err == nil {
				return form, nil
			}
		}
	}
	if !codec.IsJPEG(src) {
		return c.convertDecoded(dst, src)
	}
	p := &c.packed
	limit := int(packedLimit(src))
	if err := c.decoder.Pack(p, src, limit); err != nil {
		return dst, err
	}
	size := fixed + len(p.Header) + len(p.Head) + len(p.Tail) + len(p.Body)
	if size > limit || len(src) > math.MaxInt32 {
		return dst, &codec.Error{Kind: codec.ErrNotPacked, Why: "its form would be too large"}
	}
	le := binary.LittleEndian
	begin := len(dst)
	flags := byte(0)
	if p.Ones {
		flags |= flagOnes
	}
	dst = append(append(dst, magic...), version, flags, 0, 0, 0, 0, 0, 0)
	dst = le.AppendUint32(dst, digest.Of(src))
	dst = le.AppendUint64(dst, uint64(len(src)))
	for _, n := range []int{p.ScanSize, len(p.Header), len(p.Head), len(p.Tail)} {
		dst = le.AppendUint32(dst, uint32(n))
	}
	for _, part := range [][]byte{p.Header, p.Head, p.Tail, p.Body} {
		dst = append(dst, part...)
	}
	le.PutUint32(dst[begin+digestAt:], digest.Of(dst[begin+digestFrom:]))
	return dst, nil
}

// Current reports whether a form is what Convert would make, as far as can be said without making
// it: another one could be made of its sample if not.
func (c *Converter) Current(form []byte) bool {
	p := c.maker()
	switch info, err := Read(form); {
	case err != nil || info.Kind == Pixels:
		return true // of which no sample can be had
	case info.Kind == Record:
		return c.currentRecord(form)
	case info.Kind == Transformed:
		made, _, _ := parsePrefix(form)
		if p == nil || made.recipe != p.Recipe {
			return false
		}
		h, err := c.decoder.Header(made.file)
		return err == nil && c.prefers(made.file, &h)
	case p == nil:
		return true
	case info.Kind == Decoded:
		return prefixSize(info.Size, &p.Prefix) >= int64(len(form))
	default:
		return !c.JPEGs || prefixSize(info.Size, &p.Prefix) > mostPrefix*info.Size
	}
}

// Restore appends the sample of which a form was made. It checks the form's digest, and that
// of the sample: a form of other bytes is an error of ErrDamaged. The error for a form of the kind
// Pixels is of codec.ErrNotPacked.
func (c *Converter) Restore(dst, form []byte) ([]byte, error) {
	if err := Check(form); err != nil {
		return dst, err
	}
	var p codec.Packed
	info, err := parse(&p, form)
	if err != nil {
		return dst, err
	}
	begin := len(dst)
	switch info.Kind {
	case Decoded:
		dst = append(dst, form[fixedDecoded:][:info.Size]...)
	case Transformed:
		dst = append(dst, form[fixedPrefix:][:info.Size]...)
	case Record:
		dst, err = c.restoreRecord(dst, form)
	default:
		dst, err = c.decoder.Unpack(dst, &p)
	}
	switch {
	case errors.Is(err, codec.ErrNotPacked):
		return dst, err
	case err != nil:
		return dst, fmt.Errorf("%w: %w", ErrDamaged, err)
	case int64(len(dst)-begin) != info.Size || digest.Of(dst[begin:]) != info.Digest:
		return dst[:begin], fmt.Errorf("%w: it gives other bytes than those of the sample",
			ErrDamaged)
	}
	return dst, nil
}

// Check checks a form's digest. Errors are of ErrVersion or ErrDamaged.
func Check(form []byte) error {
	if _, err := Read(form); err != nil {
		return err
	}
	want := binary.LittleEndian.Uint32(form[digestAt:])
	if got := digest.Of(form[digestFrom:]); got != want {
		return fmt.Errorf("%w: its digest is %08x, and not %08x", ErrDamaged, got, want)
	}
	return nil
}

// Read describes a form, whose digest it does not check. Errors are of ErrVersion or ErrDamaged.
func Read(form []byte) (Info, error) {
	var p codec.Packed
	return parse(&p, form)
}

// parse sets the parts of p to those of form, unless it is another form than that of a JPEG.
func parse(p *codec.Packed, form []byte) (Info, error) {
	if isPrefix(form) {
		_, info, err := parsePrefix(form)
		return info, err
	}
	if isDecoded(form) {
		return parseDecoded(new(codec.Decoded), form)
	}
	if isRecord(form) {
		return readRecord(form)
	}
	if len(form) < fixed || string(form[:len(magic)]) != magic {
		return Info{}, fmt.Errorf("%w: it begins with % x", ErrDamaged, form[:min(len(form), 8)])
	}
	if v := form[len(magic)]; v != version {
		return Info{}, fmt.Errorf("%w: %d, and this release reads %d", ErrVersion, v, version)
	}
	le := binary.LittleEndian
	*p = codec.Packed{ScanSize: int(le.Uint32(form[24:])), Ones: form[5]&flagOnes != 0}
	rest := form[fixed:]
	for i, part := range []*[]byte{&p.Header, &p.Head, &p.Tail} {
		n := int64(le.Uint32(form[28+4*i:]))
		if n > int64(len(rest)) {
			return Info{}, fmt.Errorf("%w: %d bytes are less than its parts", ErrDamaged, len(form))
		}
		*part, rest = rest[:n:n], rest[n:]
	}
	p.Body = rest
	info := Info{Exact, int64(le.Uint64(form[16:])), le.Uint32(form[12:])}
	if p.ScanSize == 0 {
		info.Kind = Pixels
		return info, nil
	}
	if int64(len(p.Header)+p.ScanSize+len(p.Tail)) != info.Size ||
		p.ScanSize > mostExpansion*len(p.Body) {
		return Info{}, fmt.Errorf("%w: its parts are of another size than the sample", ErrDamaged)
	}
	return info, nil
}

// errFields is the error of a Record in the place of the form of an image.
var errFields = fmt.Errorf("%w: it has several fields", ErrDamaged)

// Header returns what d.Header returns for the sample, which has one field.
func Header(d *codec.Decoder, form []byte) (codec.Header, error) {
	var p codec.Packed
	info, err := parse(&p, form)
	switch {
	case err != nil:
		return codec.Header{}, err
	case info.Kind == Decoded:
		return d.Header(form[fixedDecoded:][:info.Size])
	case info.Kind == Transformed:
		return d.Header(form[fixedPrefix:][:info.Size])
	case info.Kind == Record:
		return codec.Header{}, errFields
	}
	return d.PackedHeader(&p)
}

// Decode decodes a form as d.Decode does the sample, bit for bit. It does not check the digest: an
// altered form may give other pixels.
func Decode(
	d *codec.Decoder, dst *pixels.Image, form []byte, want codec.Want,
) (origin image.Point, err error) {
	if isDecoded(form) {
		return decodeDecoded(d, dst, form, want)
	}
	var p codec.Packed
	switch info, err := parse(&p, form); {
	case err != nil:
		return origin, err
	case info.Kind == Record:
		return origin, errFields
	case info.Kind == Transformed:
		return d.Decode(dst, form[fixedPrefix:][:info.Size], want)
	}
	return d.DecodePacked(dst, &p, want)
}

// Region decodes want's region of a file, AsRead, or of a form to buffer, and returns its pixels.
// shared means that they lie in src itself, which must not change, and not in the buffer.
func Region(d *codec.Decoder, buffer *pixels.Image, src []byte, kind Kind, want codec.Want,
) (m pixels.Image, shared bool, err error) {
	if kind == Decoded {
		if m, ok, err := View(d, src, want); ok || err != nil {
			return m, ok, err
		}
	}
	var origin image.Point
	if kind == AsRead {
		origin, err = d.Decode(buffer, src, want)
	} else {
		origin, err = Decode(d, buffer, src, want)
	}
	if err != nil {
		return m, false, err
	}
	return buffer.Sub(want.Region.Sub(origin)), false, nil
}
