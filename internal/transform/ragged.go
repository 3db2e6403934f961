package transform

import (
	"encoding/binary"
	"errors"

	"github.com/hdmlp/hdmlp/internal/transform/codec"
)

// Ragged ends a list whose images keep the sizes that they have: each is delivered with its height
// and width before its pixels, for what is to be done with it elsewhere.
//
//	largest  bytes that an image may become. One that would be larger is delivered encoded, as it is in its file, for a
//	         decoder that takes one image at a time; so is one of a format that this package does not decode, and one whose
//	         EXIF orientation may matter to who gets it. Which samples these are depends on their contents alone.
var ragged = kind{
	name:   "Ragged",
	params: []param{{"largest", "8388608"}},
	build: func(a *arguments) step {
		return raggedEnd{a.whole("largest", 1, maxOutput-raggedHead)}
	},
}

type raggedEnd struct{ largest int }

// raggedHead is how many bytes there are before a ragged sample's own: its height and its width,
// u32 each, in pixels, before height x width x channels levels; both are 0 where the encoded image
// follows.
const raggedHead = 8

func (s raggedEnd) follow(k *known) error {
	if err := k.image(); err != nil {
		return err
	}
	k.stage, k.largest = sizes, s.largest
	return nil
}

// Ragged reports whether samples become images of different sizes: the height and width of Output
// are 0 then.
func (p *Program) Ragged() bool { return p.known.stage == sizes }

// encodedRatio is how many times as many bytes as its file an image of the web or of a camera has
// when it is decoded, about: 5 to 12.
const encodedRatio = 8

// Expected is about how many bytes a sample becomes whose file has so many.
func (p *Program) Expected(file float64) float64 {
	k := &p.known
	switch {
	case !p.Ragged():
		return float64(p.bytes)
	case k.width > 0:
		return float64(raggedHead + k.width*k.height*k.channels)
	case k.shorter > 0: // of images that are half as long again
		return float64(raggedHead) + 1.5*float64(k.shorter*k.shorter*k.channels)
	}
	if pixels := encodedRatio * file / 3 * float64(k.channels); pixels <= float64(k.largest) {
		return raggedHead + pixels
	}
	return raggedHead + file
}

// ragged is Apply for samples whose size is not known before. room is asked before pixels are
// computed, where the transforms allow it.
func (w *Worker) ragged(room Room, src []byte, key Key) error {
	err := w.image(room, src, key)
	for _, others := range []error{
		errLarge, errTurned, codec.ErrFormat, codec.ErrUnsupported,
		codec.ErrAnimated,
	} {
		if errors.Is(err, others) {
			return raggedEncoded(room, src)
		}
	}
	return err
}

// Why an image is delivered encoded.
var (
	errLarge  = errors.New("the image becomes larger than a ragged one may be")
	errTurned = errors.New("the image has an EXIF orientation")
)

// raggedRoom takes room for an image, and returns that of its pixels.
func (w *Worker) raggedRoom(room Room, width, height int) ([]byte, error) {
	size := int64(width) * int64(height) * int64(w.program.known.channels)
	if size > int64(w.program.known.largest) {
		return nil, errLarge
	}
	dst, err := room(raggedHead + int(size))
	if err != nil {
		return nil, err
	}
	binary.LittleEndian.PutUint32(dst, uint32(height))
	binary.LittleEndian.PutUint32(dst[4:], uint32(width))
	return dst[raggedHead:], nil
}

// raggedEncoded delivers a sample as it is.
func raggedEncoded(room Room, src []byte) error {
	dst, err := room(raggedHead + len(src))
	if err != nil {
		return err
	}
	clear(dst[:raggedHead])
	copy(dst[raggedHead:], src)
	return nil
}
