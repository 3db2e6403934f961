package transform

import (
	"errors"

	"github.com/hdmlp/hdmlp/internal/transform/codec"
)

// ImgDecode decodes an image, as PIL's Image.open(f).convert(mode) does.
//
//	mode        "RGB" or "L": three channels or one
//	fast        decode a JPEG at a half, a quarter or an eighth of its size if it is then still
//	            more than twice as large as its resized size; results differ from PIL's
//	orient      apply the EXIF orientation, as PIL's ImageOps.exif_transpose
//	max_pixels  refuse images with more pixels; the default is PIL's limit
//	leave       leave images that this package does not decode, or not as every Pillow does, to the
//	            receiver (left.Error); the package sets it itself
//	unconverted with leave: leave images which PIL opens in another mode, too
var imgDecode = kind{
	name: "ImgDecode",
	help: "decode a JPEG, PNG or WebP; implied before the first transform of images",
	params: []param{
		{"mode", `"RGB"`},
		{"fast", "false"},
		{"orient", "false"},
		{"max_pixels", "178956970"},
		{"leave", "false"},
		{"unconverted", "false"},
	},
	joint: ofAll,
	build: func(a *arguments) step {
		return decode{
			gray: a.Choice("mode", "RGB", "L") == "L", fast: a.Flag("fast"),
			orient: a.Flag("orient"), leave: a.Flag("leave"),
			unconverted: a.Flag("unconverted"),
			most:        int64(a.Whole("max_pixels", 1, 1<<31-1)),
		}
	},
}

type decode struct {
	gray, fast, orient, leave, unconverted bool
	most                                   int64 // pixels
}

func defaultDecode() step { return decode{most: codec.MaxPixels} }

func (s decode) follow(k *known) error {
	if k.stage != encoded {
		return errors.New("it decodes a file's bytes and must come first in the list")
	}
	k.stage = picture
	k.gray, k.fast = s.gray, s.fast
	k.orient, k.most = s.orient, s.most
	k.leave, k.unconverted = s.leave, s.unconverted
	k.channels = 3
	if s.gray {
		k.channels = 1
	}
	k.varies = "images keep the sizes that they have in their files; add RandomResizedCrop(224), " +
		"Resize((224, 224)), or Resize(256) and CenterCrop(224)"
	return nil
}
