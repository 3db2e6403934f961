package pixels

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Type is the element type of a tensor.
type Type uint8

// Types of tensors, little endian in memory.
const (
	Uint8 Type = iota
	Float16
	BFloat16
	Float32
	// Of masks only: a Packer makes none of them.
	Bool
	Uint16
	Int32
	Int64
)

// Size returns an element's size in bytes.
func (t Type) Size() int { return [...]int{1, 2, 2, 4, 1, 2, 4, 8}[t] }

func (t Type) String() string {
	return [...]string{
		"uint8", "float16", "bfloat16", "float32", "bool", "uint16", "int32", "int64",
	}[t]
}

// Put writes a number of a mask, from 0 to 65535, as an element.
func (t Type) Put(dst []byte, v int) {
	switch t {
	case Float32:
		binary.LittleEndian.PutUint32(dst, math.Float32bits(float32(v)))
	case Uint16:
		binary.LittleEndian.PutUint16(dst, uint16(v))
	case Int32:
		binary.LittleEndian.PutUint32(dst, uint32(v))
	case Int64:
		binary.LittleEndian.PutUint64(dst, uint64(v))
	default:
		dst[0] = byte(v)
	}
}

// Layout is the order of a tensor's dimensions.
type Layout uint8

// Layouts: channels first (torch's), or last.
const (
	CHW Layout = iota
	HWC
)

// Flip is how an image is mirrored when it is packed into a tensor.
type Flip uint8

// Flips, which can be combined.
const (
	FlipHorizontal Flip = 1 << iota
	FlipVertical
)

// Scale is how levels from 0 to 255 become numbers from 0 to 1.
type Scale uint8

// Scales: not at all; by x/255 (torchvision's v1); or by x * (1/255), with 1/255 as a float32
// (v2's ToDtype).
const (
	Levels Scale = iota
	Quotient
	Product
)

// Target describes the tensor that an image is packed into. A sample x is converted in float32
// arithmetic, in this order: by Scale; to (x-Mean[c])/Std[c] if Mean is set (Normalize); and to the
// nearest value of Type, ties to even. If Arithmetic is Float16 or BFloat16, the result of each of
// these operations is rounded to it, and so are Mean and Std, as torch computes with tensors of
// these types. Type Uint8 allows neither Scale nor Mean.
type Target struct {
	Type       Type
	Arithmetic Type
	Layout     Layout
	Scale      Scale
	Mean, Std  []float32 // both or neither: one per channel, or one for all
}

// Packer writes images as tensors. It is immutable and safe for concurrent use.
type Packer struct {
	target Target
	// The converted value of each sample, per channel: the reference for all kernels.
	words   [channels][256]uint32
	kernels kernelPlan
}

// channels is the largest number of channels of a tensor.
const channels = 3

// NewPacker returns the Packer for t, or an error if t is invalid.
func NewPacker(t Target) (*Packer, error) {
	if t.Type > Float32 {
		return nil, fmt.Errorf("images have no tensors of type %v", t.Type)
	}
	if (t.Scale != Levels || len(t.Mean) > 0 || len(t.Std) > 0) && t.Type == Uint8 {
		return nil, fmt.Errorf("a tensor of type %v cannot be scaled or normalized", t.Type)
	}
	if len(t.Mean) != len(t.Std) || (len(t.Mean) > 1 && len(t.Mean) != channels) {
		return nil, fmt.Errorf("normalizing takes one mean and one std for each of 3 channels, "+
			"or one for all; there are %d and %d",
			len(t.Mean), len(t.Std))
	}
	for _, s := range t.Std {
		if t.Arithmetic.round(s) == 0 {
			return nil, fmt.Errorf("std is %g, and must not be 0 as a %v: normalizing divides by it",
				s, t.arithmetic())
		}
	}
	p := &Packer{target: t}
	for c := range channels {
		for x := range 256 {
			p.words[c][x] = t.word(float32(x), c)
		}
	}
	p.kernels.prepare(p)
	return p, nil
}

// arithmetic returns the type of the tensor that is normalized.
func (t *Target) arithmetic() Type {
	if t.Arithmetic == Uint8 {
		return Float32
	}
	return t.Arithmetic
}

// round returns x as the nearest value of Float16 or BFloat16; of other types it returns x.
func (t Type) round(x float32) float32 {
	switch t {
	case Float16:
		return FromFloat16(float16(x))
	case BFloat16:
		return FromBFloat16(bfloat16(x))
	}
	return x
}

// word returns the bits of the converted sample x of channel c.
func (t *Target) word(x float32, c int) uint32 {
	if t.Type == Uint8 {
		return uint32(x)
	}
	switch t.Scale {
	case Quotient:
		x /= 255
	case Product:
		x *= float32(1.0 / 255)
	}
	a := t.Arithmetic
	x = a.round(x)
	if len(t.Mean) > 0 {
		c = min(c, len(t.Mean)-1)
		x = a.round(x - a.round(t.Mean[c]))
		x = a.round(x / a.round(t.Std[c]))
	}
	switch t.Type {
	case Float16:
		return uint32(float16(x))
	case BFloat16:
		return uint32(bfloat16(x))
	}
	return math.Float32bits(x)
}

// bfloat16 returns the nearest bfloat16, ties to even.
func bfloat16(x float32) uint16 {
	b := math.Float32bits(x)
	if x != x {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// float16 returns the nearest IEEE half, ties to even.
func float16(x float32) uint16 {
	b := math.Float32bits(x)
	sign := uint16(b >> 16 & 0x8000)
	b &= 0x7fffffff
	switch {
	case b > 0x7f800000: // NaN
		return sign | 0x7e00
	case b >= 0x477ff000: // rounds to more than the largest half, 65504
		return sign | 0x7c00
	// below the smallest normal half: adding 0.5 puts the half's last bit into the float's last
	case b < 0x38800000:
		return sign | uint16(math.Float32bits(math.Float32frombits(b)+0.5)-math.Float32bits(0.5))
	}
	b += 0xfff + b>>13&1
	return sign | uint16((b-(127-15)<<23)>>13)
}

// Size returns the size in bytes of the tensor of a width x height image.
func (p *Packer) Size(width, height, channels int) int {
	return width * height * channels * p.target.Type.Size()
}

// Pack writes src, mirrored by flip, to dst as a tensor without padding. src must have one or three
// channels, and dst at least Size bytes.
func (p *Packer) Pack(dst []byte, src *Image, flip Flip) {
	if src.Channels != 1 && src.Channels != channels {
		panic(fmt.Sprintf("pixels: pack an image of %d channels", src.Channels))
	}
	p.pack(dst[:p.Size(src.Width, src.Height, src.Channels)], src, flip)
}
