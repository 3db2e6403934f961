package transform

import (
	"errors"
	"fmt"

	"github.com/hdmlp/hdmlp/internal/transform/arrays"
	"github.com/hdmlp/hdmlp/internal/transform/codec"
	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// Pixels takes a sample's bytes as the levels of an image, which is not encoded.
//
//	width, height  of every image
//	channels       1 or 3
//	layout         "HWC": the channels of a pixel lie together; "CHW": those of the image, as in
//	               CIFAR's files
var pixelsOf = kind{
	name: "Pixels",
	help: "take a sample's bytes as the pixels of an image, as CIFAR and MNIST store them",
	params: []param{
		{"width", ""},
		{"height", ""},
		{"channels", "3"},
		{"layout", `"HWC"`},
	},
	build: func(a *arguments) step {
		s := stored{
			width: a.Whole("width", 1, 1<<15), height: a.Whole("height", 1, 1<<15),
			channels: a.Whole("channels", 1, 3),
			planar:   a.Choice("layout", "HWC", "CHW") == "CHW",
		}
		if s.channels == 2 {
			a.Fault("channels", "it must be 1 or 3")
		}
		return s
	},
}

// stored describes images whose levels are the bytes of samples.
type stored struct {
	width, height, channels int
	planar                  bool
}

func (s stored) follow(k *known) error {
	if k.stage != encoded {
		return errors.New("it takes a sample's bytes as they are and must come first in the list")
	}
	if int64(s.width)*int64(s.height) > codec.MaxPixels {
		return fmt.Errorf("%d x %d pixels are too many; the limit is %d", s.width, s.height,
			codec.MaxPixels)
	}
	k.stage, k.stored, k.most = picture, &s, codec.MaxPixels
	k.fixed(s.width, s.height)
	k.channels, k.gray = s.channels, s.channels == 1
	return nil
}

// header returns what is known of each image.
func (s *stored) header() codec.Header {
	return codec.Header{Width: s.width, Height: s.height, Orientation: 1, Channels: s.channels}
}

// begin makes the sample src the source of v.
func (s *stored) begin(v *view, src []byte) error {
	if want := s.width * s.height * s.channels; len(src) != want {
		return fmt.Errorf("the sample has %d bytes; %d x %d pixels of %d channels have %d",
			len(src), s.width, s.height, s.channels, want)
	}
	v.sample = nil
	if !s.planar || s.channels == 1 {
		v.shared = true // the sample must not change
		v.source = pixels.Image{
			Pix: src, Width: s.width, Height: s.height, Channels: s.channels,
			Stride: s.width * s.channels,
		}
		return nil
	}
	if err := v.w.spare(0, s.width, s.height, s.channels); err != nil {
		return err
	}
	m := &v.w.buffers[0]
	m.Reset(s.width, s.height, s.channels)
	plane := s.width * s.height
	red, green, blue := src[:plane], src[plane:2*plane], src[2*plane:3*plane]
	for i := range plane {
		to := m.Pix[3*i : 3*i+3 : 3*i+3]
		to[0], to[1], to[2] = red[i], green[i], blue[i]
	}
	v.buffer, v.source = 0, *m
	return nil
}

// Bytes declares that a sample is exactly so many bytes, which are the result. The receiver makes
// arrays of them: of the samples of a batch, which lie together, one.
//
//	count  the number of bytes
var bytesOf = kind{
	name:   "Bytes",
	help:   "take a sample's bytes as they are; those of a batch are one array",
	params: []param{{"count", ""}},
	build:  func(a *arguments) step { return counted(a.Whole("count", 1, maxOutput)) },
}

// counted is a number of bytes.
type counted int

func (s counted) follow(k *known) error {
	if k.stage != encoded {
		return errors.New("it takes a sample's bytes as they are and must come first in the list")
	}
	k.stage = raw
	k.array = &arrays.Array{Shape: [3]int{1, 1, int(s)}, From: "uint8"}
	return nil
}
