package transform

import (
	"encoding/binary"
	"errors"

	"github.com/hdmlp/hdmlp/internal/transform/codec"
	"github.com/hdmlp/hdmlp/internal/transform/forms"
	"github.com/hdmlp/hdmlp/internal/transform/left"
)

// Ragged ends a list whose images further transforms outside the daemon get: each is delivered with
// its height and width before its pixels, and with what its file says beside them after these
// (codec.AppendMetadata), if that is still true of the image.
//
//	largest  most bytes of a decoded image. A larger image is delivered encoded, as in its file, for
//	         a decoder that handles one image at a time. So are images in a format that this
//	         package does not decode, and others that would not be described as PIL does. Which
//	         samples are delivered encoded depends only on their contents. 0: no sample is
//	         delivered encoded; those of other formats are errors.
var ragged = kind{
	name:   "Ragged",
	help:   "pass images on to transforms in Python; the package adds it itself",
	params: []param{{"largest", "8388608"}},
	build: func(a *arguments) step {
		return raggedEnd{a.Whole("largest", 0, maxRagged)}
	},
}

type raggedEnd struct{ largest int }

// maxRagged is the most bytes that may follow a ragged sample's header.
const maxRagged = maxOutput - raggedHead

// raggedHead is the size in bytes of the header of a ragged sample: height and width in pixels, u32
// each, followed by height x width x channels levels, and by a file of one pixel with what the
// image's own file says beside its pixels, or nothing. Both are 0 if the encoded image follows.
const raggedHead = 8

func (s raggedEnd) follow(k *known) error {
	if err := k.image(); err != nil {
		return err
	}
	if k.stored != nil {
		return errors.New("images of Pixels have one size")
	}
	k.stage = sizes
	k.largest, k.decodes = s.largest, s.largest == 0
	if k.decodes {
		k.largest = maxRagged
	}
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
	case k.joint != nil && p.Varies():
		return p.expected(file)
	case !p.Ragged():
		return float64(p.bytes)
	case k.width > 0:
		return float64(raggedHead + k.width*k.height*k.channels)
	case k.shorter > 0: // of images with an aspect ratio of 3:2
		return float64(raggedHead) + 1.5*float64(k.shorter*k.shorter*k.channels)
	case p.Encodes(file):
		return raggedHead + file
	}
	return raggedHead + p.decodedSize(file)
}

// decodedSize estimates the size in bytes of the pixels of an image whose file has the given size.
func (p *Program) decodedSize(file float64) float64 {
	return encodedRatio * file / 3 * float64(p.known.channels)
}

// Encodes reports whether images of files of the given size, in bytes, are delivered encoded as a
// rule, because they are large.
func (p *Program) Encodes(file float64) bool {
	k := &p.known
	return p.Ragged() && k.width == 0 && k.shorter == 0 && p.decodedSize(file) > float64(k.largest)
}

// ragged is ApplyTo for samples whose size is not known in advance. It calls alloc before computing
// pixels, if the transforms allow it.
func (w *Worker) ragged(alloc Alloc, src []byte, key Key) error {
	err := w.image(alloc, src, key)
	if w.program.known.decodes {
		return err
	}
	if !errors.Is(err, left.ErrLarge) && !errors.Is(err, left.ErrOther) && !left.Foreign(err) {
		return err
	}
	if w.form != forms.AsRead {
		file, ok := forms.File(src)
		if !ok {
			return err
		}
		src = file
	}
	return raggedEncoded(alloc, src)
}

// describable returns left.ErrOther for an image which has to be described as PIL does, and would
// not be by its file's metadata: one of several images, one that was turned, or one with a
// transparent colour, of which a new image of PIL's may have another or the same.
func (w *Worker) describable(h *codec.Header) error {
	k, v := &w.program.known, &w.view
	if k.stage == sizes && !k.decodes && (h.Animated || k.orient && h.Orientation != 1 ||
		h.Transparent && (v.bare || v.grayed)) {
		return left.ErrOther
	}
	return nil
}

// raggedAlloc gets memory for an image of the sample src from alloc, writes what is before and
// after its pixels, and returns the memory for these.
func (w *Worker) raggedAlloc(alloc Alloc, src []byte) ([]byte, error) {
	k := &w.program.known
	width, height := w.view.size()
	size := int64(width) * int64(height) * int64(k.channels)
	w.metadata = w.metadata[:0]
	if !w.view.bare {
		if w.form != forms.AsRead {
			head, err := forms.Head(src)
			if err != nil {
				return nil, err
			}
			src = head
		}
		w.metadata = codec.AppendMetadata(w.metadata, src, w.view.format)
	}
	if size+int64(len(w.metadata)) > int64(k.largest) {
		return nil, left.ErrLarge
	}
	dst, err := alloc(0, raggedHead+int(size)+len(w.metadata))
	if err != nil {
		return nil, err
	}
	binary.LittleEndian.PutUint32(dst, uint32(height))
	binary.LittleEndian.PutUint32(dst[4:], uint32(width))
	copy(dst[raggedHead+int(size):], w.metadata)
	return dst[raggedHead:][:size], nil
}

// raggedEncoded delivers a sample in encoded form.
func raggedEncoded(alloc Alloc, src []byte) error {
	dst, err := alloc(0, raggedHead+len(src))
	if err != nil {
		return err
	}
	clear(dst[:raggedHead])
	copy(dst[raggedHead:], src)
	return nil
}
