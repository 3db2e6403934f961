package transform

import (
	"errors"

	"github.com/hdmlp/hdmlp/internal/transform/arrays"
	"github.com/hdmlp/hdmlp/internal/transform/codec"
)

// Pixels takes a sample's bytes as the levels of an image, which is not encoded.
//
//	width, height  of every image
//	channels       1 or 3
//	layout         "HWC": the channels of a pixel lie together; "CHW": those of the image, as in
//	               CIFAR's files
var pixelsOf = kind{
	name:   "Pixels",
	help:   "take a sample's bytes as the pixels of an image, as CIFAR and MNIST store them",
	params: []param{{"width", ""}, {"height", ""}, {"channels", "3"}, {"layout", `"HWC"`}},
	build: func(a *arguments) step {
		s := stored{Planar: a.Choice("layout", "HWC", "CHW") == "CHW"}
		s.Width, s.Height = a.Whole("width", 1, 1<<13), a.Whole("height", 1, 1<<13)
		if s.Channels = a.Whole("channels", 1, 3); s.Channels == 2 {
			a.Fault("channels", "it must be 1 or 3")
		}
		return s
	},
}

type stored arrays.Image

func (s stored) follow(k *known) error {
	if k.stage != encoded {
		return errors.New("it takes a sample's bytes as they are and must come first in the list")
	}
	image := arrays.Image(s)
	k.stage, k.stored = picture, &image
	k.most, k.channels = codec.MaxPixels, s.Channels
	k.fixed(s.Width, s.Height)
	return nil
}

// beginStored sets v to the view of a whole sample that is not encoded.
func (v *view) beginStored(w *Worker, src []byte) (err error) {
	s := w.program.known.stored
	v.begin(w, nil, &codec.Header{Width: s.Width, Height: s.Height})
	v.source, err = s.Of(&w.buffers[0], src)
	v.shared = !s.Planar // then it lies in the sample, which must not change
	return err
}
