package transform

import (
	"encoding/binary"
	"errors"

	"github.com/hdmlp/hdmlp/internal/transform/codec"
)

// Ragged ends a list whose images keep their own sizes: each is delivered with its height and width
// before its pixels, for further transforms outside the daemon.
//
//	largest  most bytes of a decoded image. A larger image is delivered encoded, as in its file, for
//	         a decoder that handles one image at a time. So are images in a format that this
//	         package does not decode, and images with an EXIF orientation, which may matter to the
//	         receiver. Which samples are delivered encoded depends only on their contents.
var ragged = kind{
	name:   "Ragged",
	help:   "pass images of any size on to transforms in Python; the package adds it itself",
	params: []param{{"largest", "8388608"}},
	build: func(a *arguments) step {
		return raggedEnd{a.whole("largest", 1, maxOutput-raggedHead)}
	},
}

type raggedEnd struct{ largest int }

// raggedHead is the size in bytes of the header of a ragged sample: height and width in pixels, u32
// each, followed by height x width x channels levels. Both are 0 if the encoded image follows.
const raggedHead = 8

func (s raggedEnd) follow(k *known) error {
	if err := k.image(); err != nil {
		return err
	}
	k.stage, k.largest = sizes, s.largest
	return nil
}

// Ragged reports whether samples become images of different sizes. The height and width of Output
// are then 0.
func (p *Program) Ragged() bool { return p.known.stage == sizes }

// encodedRatio is the typical ratio of an image's decoded size to its file size; 5 to 12 for images
// from the web or cameras.
const encodedRatio = 8

// Expected estimates the output size in bytes of a sample whose file has the given size.
func (p *Program) Expected(file float64) float64 {
	k := &p.known
	switch {
	case !p.Ragged():
		return float64(p.bytes)
	case k.width > 0:
		return float64(raggedHead + k.width*k.height*k.channels)
	case k.shorter > 0: // of images with an aspect ratio of 3:2
		return float64(raggedHead) + 1.5*float64(k.shorter*k.shorter*k.channels)
	}
	if pixels := encodedRatio * file / 3 * float64(k.channels); pixels <= float64(k.largest) {
		return raggedHead + pixels
	}
	return raggedHead + file
}

// ragged is ApplyTo for samples whose size is not known in advance. It calls alloc before computing
// pixels, if the transforms allow it.
func (w *Worker) ragged(alloc Alloc, src []byte, key Key) error {
	err := w.image(alloc, src, key)
	for _, others := range []error{
		errLarge, errTurned, codec.ErrFormat, codec.ErrUnsupported,
		codec.ErrAnimated,
	} {
		if errors.Is(err, others) {
			return raggedEncoded(alloc, src)
		}
	}
	return err
}

// Reasons for delivering an image encoded.
var (
	errLarge  = errors.New("the image becomes larger than a ragged one may be")
	errTurned = errors.New("the image has an EXIF orientation")
)

// raggedAlloc gets memory for an image from alloc, writes the header, and returns the memory for
// the pixels.
func (w *Worker) raggedAlloc(alloc Alloc, width, height int) ([]byte, error) {
	size := int64(width) * int64(height) * int64(w.program.known.channels)
	if size > int64(w.program.known.largest) {
		return nil, errLarge
	}
	dst, err := alloc(raggedHead + int(size))
	if err != nil {
		return nil, err
	}
	binary.LittleEndian.PutUint32(dst, uint32(height))
	binary.LittleEndian.PutUint32(dst[4:], uint32(width))
	return dst[raggedHead:], nil
}

// raggedEncoded delivers a sample in encoded form.
func raggedEncoded(alloc Alloc, src []byte) error {
	dst, err := alloc(raggedHead + len(src))
	if err != nil {
		return err
	}
	clear(dst[:raggedHead])
	copy(dst[raggedHead:], src)
	return nil
}
