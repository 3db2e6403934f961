package transform

import "errors"

// ImgDecode decodes an image, as PIL's Image.open(f).convert(mode) does.
//
//	mode    "RGB" or "L": three channels or one
//	fast    decode a JPEG at a half, a quarter or an eighth where it is then still at
//	        least as large as the size it is resized to; not PIL's numbers any more
//	orient  turn the image as its EXIF orientation says, as PIL's ImageOps.exif_transpose
var imgDecode = kind{
	name:   "ImgDecode",
	params: []param{{"mode", `"RGB"`}, {"fast", "false"}, {"orient", "false"}},
	build: func(a *arguments) step {
		return decode{gray: a.choice("mode", "RGB", "L") == "L", fast: a.flag("fast"), orient: a.flag("orient")}
	},
}

type decode struct{ gray, fast, orient bool }

func defaultDecode() step { return decode{} }

func (s decode) follow(k *known) error {
	if k.stage != encoded {
		return errors.New("it decodes a file's bytes, and must be the first of the list")
	}
	k.stage, k.gray, k.fast, k.orient = picture, s.gray, s.fast, s.orient
	k.channels = 3
	if s.gray {
		k.channels = 1
	}
	k.varies = "images keep the size that they have in their files; add RandomResizedCrop(224), Resize((224, 224)), or Resize(256) and CenterCrop(224)"
	return nil
}
