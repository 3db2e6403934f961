package forms

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/hdmlp/hdmlp/internal/lib/digest"
	"github.com/hdmlp/hdmlp/internal/transform/codec"
	"github.com/hdmlp/hdmlp/internal/transform/pixels"
	"github.com/hdmlp/hdmlp/internal/transform/random"
)

// A Transformed form is, with all numbers little-endian:
//
//	0   4 bytes   magic
//	4   1 byte    version
//	5   1 byte    channels
//	6   2 bytes   0
//	8   4 bytes   digest of what follows
//	12  4 bytes   digest of the sample
//	16  8 bytes   size of the sample
//	24  4 bytes   width
//	28  4 bytes   height
//	32  16 bytes  recipe
//	48            the sample, rows of pixels
const (
	magicPrefix = "HDMP"
	recipeAt    = 32
	fixedPrefix = 48
)

// kernels is the version of what decodes, resizes and crops. It is part of each recipe, and changes
// if one of them computes other pixels than before.
const kernels = 1

// Recipe is the digest of a list of transforms that make the same pixels of an image each time.
type Recipe [16]byte

// Prefix describes the pixels of Transformed forms.
type Prefix struct {
	Recipe        Recipe // all that they follow from, besides the file
	Width, Height int
	Channels      int // 1 or 3
}

// PrefixOf returns the Prefix of what transforms make, which have these names and arguments, in
// turn. Arguments are values that print as they are.
func PrefixOf(width, height, channels int, transforms []any) Prefix {
	hash := sha256.New()
	fmt.Fprintln(hash, kernels)
	for _, part := range transforms {
		fmt.Fprintf(hash, "%+v\n", part)
	}
	return Prefix{Recipe(hash.Sum(nil)), width, height, channels}
}

// Bytes returns how many bytes the pixels have.
func (p *Prefix) Bytes() int64 { return int64(p.Width) * int64(p.Height) * int64(p.Channels) }

// Maker makes the pixels of Transformed forms.
type Maker struct {
	Prefix
	Worker Worker
}

// Worker applies the transforms of a Prefix. It need not be safe for concurrent use.
type Worker interface {
	// Apply writes the pixels of a file to dst, which has as many bytes, row after row. It returns an
	// error if they cannot be made of it.
	Apply(dst, file []byte, key random.Key) error
	// Whole sets whether damage anywhere in a file is an error.
	Whole(on bool)
}

// prefixed is what a Transformed form holds.
type prefixed struct {
	recipe Recipe
	file   []byte
	pixels pixels.Image
}

// isPrefix reports whether a form, if it is one, is a Transformed one.
func isPrefix(form []byte) bool {
	return len(form) >= fixedPrefix && string(form[:len(magicPrefix)]) == magicPrefix
}

// prefixSize returns the size of a Transformed form.
func prefixSize(sample int64, p *Prefix) int64 { return fixedPrefix + sample + p.Bytes() }

// convertPrefix is Convert for a Transformed form, as the field's Maker makes it. It checks that
// all of the file is sound, and that a WebP's pixels are the same if that is not checked.
func (c *Converter) convertPrefix(dst, src []byte, h *codec.Header) ([]byte, error) {
	p := c.maker()
	size, begin := int(p.Bytes()), len(dst)
	dst = slices.Grow(dst, fixedPrefix+len(src)+size)
	dst = append(dst, magicPrefix...)
	dst = append(dst, version, byte(p.Channels), 0, 0, 0, 0, 0, 0)
	le := binary.LittleEndian
	dst = le.AppendUint32(dst, digest.Of(src))
	dst = le.AppendUint64(dst, uint64(len(src)))
	dst = le.AppendUint32(dst, uint32(p.Width))
	dst = le.AppendUint32(dst, uint32(p.Height))
	dst = append(append(dst, p.Recipe[:]...), src...)
	made := dst[len(dst) : len(dst)+size] // they are made where they stay
	p.Worker.Whole(true)
	if err := p.Worker.Apply(made, src, random.Key{}); err != nil {
		return dst[:begin], err
	}
	if h.Format == codec.WebP {
		// libwebp finds the pixels in the file in another way then.
		p.Worker.Whole(false)
		c.again = slices.Grow(c.again[:0], size)[:size]
		err := p.Worker.Apply(c.again, src, random.Key{})
		if err != nil || !bytes.Equal(c.again, made) {
			return dst[:begin], &codec.Error{
				Kind: codec.ErrNotPacked, Why: "its pixels depend on how they are looked for",
			}
		}
	}
	dst = dst[:len(dst)+size]
	le.PutUint32(dst[begin+digestAt:], digest.Of(dst[begin+digestFrom:]))
	return dst, nil
}

// parsePrefix returns what a Transformed form holds, as parts of it.
func parsePrefix(form []byte) (p prefixed, info Info, err error) {
	if v := form[len(magicPrefix)]; v != version {
		return p, info, fmt.Errorf("%w: %d, and this release reads %d", ErrVersion, v, version)
	}
	le := binary.LittleEndian
	info = Info{Transformed, int64(le.Uint64(form[16:])), le.Uint32(form[12:])}
	width, height := int64(le.Uint32(form[24:])), int64(le.Uint32(form[28:]))
	rest, channels := form[fixedPrefix:], int64(form[5])
	if info.Size < 0 || info.Size > int64(len(rest)) || channels != 1 && channels != 3 ||
		width == 0 || height == 0 || width > codec.MaxPixels/height ||
		int64(len(rest))-info.Size != width*height*channels {
		return p, Info{}, fmt.Errorf("%w: its parts have other sizes than its %d bytes", ErrDamaged,
			len(form))
	}
	p.recipe = Recipe(form[recipeAt:])
	p.file = rest[:info.Size:info.Size]
	p.pixels = pixels.Image{
		Pix: rest[info.Size:len(rest):len(rest)], Width: int(width), Height: int(height),
		Channels: int(channels), Stride: int(width * channels),
	}
	return p, info, nil
}

// ResultOf returns the pixels in a Transformed form that are made by p, which must not be changed.
// ok is false if the form is another one, of another recipe, or damaged: it is then decoded from
// its file, as Decode does.
func ResultOf(form []byte, p Prefix) (m pixels.Image, ok bool) {
	if !isPrefix(form) {
		return m, false
	}
	of, _, err := parsePrefix(form)
	m = of.pixels
	return m, err == nil && of.recipe == p.Recipe && m.Width == p.Width && m.Height == p.Height &&
		m.Channels == p.Channels
}
