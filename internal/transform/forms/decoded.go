package forms

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"image"
	"slices"

	"github.com/hdmlp/hdmlp/internal/lib/digest"
	"github.com/hdmlp/hdmlp/internal/transform/codec"
	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// A Decoded form is, with all numbers little-endian:
//
//	0   4 bytes  magic
//	4   1 byte   version
//	5   1 byte   channels
//	6   2 bytes  0
//	8   4 bytes  digest of what follows
//	12  4 bytes  digest of the sample
//	16  8 bytes  size of the sample
//	24  4 bytes  width
//	28  4 bytes  height
//	32           the sample, rows of pixels
const (
	magicDecoded = "HDMD"
	fixedDecoded = 32
)

// isDecoded reports whether a form, if it is one, is a Decoded one.
func isDecoded(form []byte) bool {
	return len(form) >= fixedDecoded && string(form[:len(magicDecoded)]) == magicDecoded
}

// decodedSize returns the size of a Decoded form.
func decodedSize(sample, width, height, channels int) int64 {
	return fixedDecoded + int64(sample) + int64(width)*int64(height)*int64(channels)
}

// channelsOf returns how many channels the pixels of an image with that header have in its form.
func channelsOf(h *codec.Header) int {
	if h.Channels == 1 {
		return 1
	}
	return 3
}

// convertDecoded is Convert for what is no JPEG.
func (c *Converter) convertDecoded(dst, src []byte) ([]byte, error) {
	h, err := c.decoder.Header(src)
	if err != nil {
		return dst, err
	}
	channels := channelsOf(&h)
	size := decodedSize(len(src), h.Width, h.Height, channels)
	if c.Memory > 0 && size > c.Memory {
		return dst, &codec.MemoryError{Need: size}
	}
	begin := len(dst)
	dst = slices.Grow(dst, int(size))
	dst = append(dst, magicDecoded...)
	dst = append(dst, version, byte(channels), 0, 0, 0, 0, 0, 0)
	le := binary.LittleEndian
	dst = le.AppendUint32(dst, digest.Of(src))
	dst = le.AppendUint64(dst, uint64(len(src)))
	dst = le.AppendUint32(dst, uint32(h.Width))
	dst = le.AppendUint32(dst, uint32(h.Height))
	dst = append(dst, src...)
	m := pixels.Image{Pix: dst[len(dst):]} // they are decoded to where they stay
	if err := c.decoder.DecodeAll(&m, src); err != nil {
		return dst[:begin], err
	}
	if n := len(dst); n < cap(dst) && &dst[:n+1][n] == &m.Pix[0] {
		dst = dst[:n+len(m.Pix)]
	} else {
		dst = append(dst, m.Pix...)
	}
	le.PutUint32(dst[begin+digestAt:], digest.Of(dst[begin+digestFrom:]))
	return dst, nil
}

// parseDecoded sets d to the parts of a Decoded form.
func parseDecoded(d *codec.Decoded, form []byte) (Info, error) {
	if v := form[len(magicDecoded)]; v != version {
		return Info{}, fmt.Errorf("%w: %d, and this release reads %d", ErrVersion, v, version)
	}
	le := binary.LittleEndian
	info := Info{Decoded, int64(le.Uint64(form[16:])), le.Uint32(form[12:])}
	width, height := int64(le.Uint32(form[24:])), int64(le.Uint32(form[28:]))
	rest, channels := form[fixedDecoded:], int64(form[5])
	if info.Size < 0 || info.Size > int64(len(rest)) || channels != 1 && channels != 3 ||
		width == 0 || height == 0 || width > codec.MaxPixels/height ||
		int64(len(rest))-info.Size != width*height*channels {
		return Info{}, fmt.Errorf("%w: its parts have other sizes than its %d bytes", ErrDamaged,
			len(form))
	}
	d.File = rest[:info.Size:info.Size]
	d.Pixels = pixels.Image{
		Pix: rest[info.Size:len(rest):len(rest)], Width: int(width), Height: int(height),
		Channels: int(channels), Stride: int(width * channels),
	}
	return info, nil
}

// File returns the sample that lies in a form as it is; ok is false if none does.
func File(form []byte) (file []byte, ok bool) {
	var of codec.Decoded
	switch {
	case isDecoded(form):
		_, err := parseDecoded(&of, form)
		return of.File, err == nil
	case isPrefix(form):
		of, _, err := parsePrefix(form)
		return of.file, err == nil
	}
	return nil, false
}

// Head returns bytes of which codec.AppendMetadata makes the same as of the sample, as parts of the
// form. Errors are of ErrVersion or ErrDamaged.
func Head(form []byte) ([]byte, error) {
	if file, ok := File(form); ok {
		return file, nil
	}
	var p codec.Packed
	if info, err := parse(&p, form); err != nil || info.Kind == Record {
		return nil, cmp.Or(err, errFields)
	}
	return p.Header, nil
}

// View returns the pixels of a region that lie in a form as Decode would return them, and that must
// not be changed; ok is false if none do. region is want's, and not empty. Errors are Decode's.
func View(d *codec.Decoder, form []byte, want codec.Want) (m pixels.Image, ok bool, err error) {
	var of codec.Decoded
	if !isDecoded(form) {
		return m, false, nil
	}
	if _, err := parseDecoded(&of, form); err != nil {
		return m, false, err
	}
	return d.ViewOf(&of, want)
}

// decodeDecoded is Decode for a Decoded form.
func decodeDecoded(
	d *codec.Decoder, dst *pixels.Image, form []byte, want codec.Want,
) (origin image.Point, err error) {
	var of codec.Decoded
	if _, err := parseDecoded(&of, form); err != nil {
		return origin, err
	}
	return d.DecodeFrom(dst, &of, want)
}
