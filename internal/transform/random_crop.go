package transform

import (
	"fmt"
	"image"

	"github.com/hdmlp/hdmlp/internal/transform/describe"
)

// RandomCrop crops a part of a fixed size, at a uniformly random position.
//
//	size           [height, width], or a whole number for both
//	padding        border to add first, as in Pad; or null
//	pad_if_needed  pad an image that is too small, on each side by as much as it is too small
//	fill           as in Pad
//	padding_mode   as in Pad
//	draws          "v1": two numbers unless the image has the size, as torchvision's v1; "v2": one
//	               for each edge that is longer than the part's, as its v2
//	mask_fill      as in Pad
var randomCrop = kind{
	name: "RandomCrop",
	params: []param{
		{"size", ""},
		{"padding", "null"},
		{"pad_if_needed", "false"},
		{"fill", "0"},
		{"padding_mode", `"constant"`},
		{"draws", `"v1"`},
		{"mask_fill", "null"},
	},
	joint: ofAll,
	build: func(a *arguments) step {
		s := randomCropped{needed: a.Flag("pad_if_needed"), border: a.border()}
		s.height, s.width = a.Size("size")
		s.apart = a.Choice("draws", "v1", "v2") == "v2"
		if !a.None("padding") {
			s.padding = a.Margins("padding")
		}
		return s
	},
}

type randomCropped struct {
	width, height int
	padding       describe.Margins
	needed        bool
	border        border
	apart         bool // a number is drawn only for an edge that is longer
}

func (s randomCropped) follow(k *known) error {
	if err := k.image(); err != nil {
		return err
	}
	if err := s.border.follow(k); err != nil {
		return err
	}
	if k.width > 0 && !s.needed {
		width, height := s.padding.Size(k.width, k.height)
		if width < s.width || height < s.height {
			return fmt.Errorf("%d x %d pixels (height x width) cannot be cut from %d x %d; "+
				"pad_if_needed=True puts a border around them", s.height, s.width, height, width)
		}
	}
	if k.shorter > 0 && !s.needed && s.padding == (describe.Margins{}) &&
		min(s.width, s.height) > k.shorter {
		return fmt.Errorf("%d x %d pixels (height x width) cannot be cut from images whose shorter "+
			"edge is %d; pad_if_needed=True puts a border around them", s.height, s.width, k.shorter)
	}
	k.fixed(s.width, s.height)
	return nil
}

func (s randomCropped) apply(v *view, d *draws) error {
	if err := s.pad(v); err != nil {
		return err
	}
	whole, err := v.around(s.padding)
	if err != nil {
		return err
	}
	if s.padding != (describe.Margins{}) {
		v.bare = true
	}
	if s.needed && (whole.Dx() < s.width || whole.Dy() < s.height) {
		// Each of up to three borders mirrors the result of the one before.
		if s.border.Mirrors() {
			if err := v.extend(whole, s.border); err != nil {
				return err
			}
			whole = whole.Sub(whole.Min)
		}
		if more := s.width - whole.Dx(); more > 0 {
			whole.Min.X, whole.Max.X = whole.Min.X-more, whole.Max.X+more
		}
		if more := s.height - whole.Dy(); more > 0 {
			whole.Min.Y, whole.Max.Y = whole.Min.Y-more, whole.Max.Y+more
		}
	}
	if whole.Dx() < s.width || whole.Dy() < s.height {
		return fmt.Errorf("%d x %d pixels (height x width) cannot be cut from an image of %d x %d; "+
			"pad_if_needed=True puts a border around it", s.height, s.width, whole.Dy(), whole.Dx())
	}
	at := image.Point{}
	extra := image.Pt(whole.Dx()-s.width, whole.Dy()-s.height)
	if extra.Y > 0 || extra.X > 0 && !s.apart {
		at.Y = d.Torch.Below(extra.Y + 1)
	}
	if extra.X > 0 || extra.Y > 0 && !s.apart {
		at.X = d.Torch.Below(extra.X + 1)
	}
	if !s.apart || extra != (image.Point{}) {
		v.targets.Crop(image.Rectangle{at, at.Add(image.Pt(s.width, s.height))})
	}
	v.note(Param{"top", float64(at.Y)}, Param{"left", float64(at.X)})
	at = at.Add(whole.Min)
	return v.extend(image.Rect(at.X, at.Y, at.X+s.width, at.Y+s.height), s.border)
}

// pad pads masks and boxes: v2 once, v1 for each reason that there is.
func (s randomCropped) pad(v *view) error {
	width, height := v.size()
	all := s.padding.Around(image.Rect(0, 0, width, height))
	across, down := 0, 0
	if s.needed {
		across, down = max(s.width-all.Dx(), 0), max(s.height-all.Dy(), 0)
	}
	if s.apart {
		all = describe.Margins{Left: across, Top: down, Right: across, Bottom: down}.Around(all)
		across, down = 0, 0
	}
	if v.targets == nil {
		return nil
	}
	for _, r := range []image.Rectangle{
		all,
		image.Rect(-across, 0, all.Dx()+across, all.Dy()),
		image.Rect(0, -down, all.Dx()+2*across, all.Dy()+down),
	} {
		w, h := v.targets.Size()
		if r.Min == (image.Point{}) && r.Max == image.Pt(w, h) {
			continue
		}
		if err := v.targets.Pad(r, s.border.Mode, s.border.mask); err != nil {
			return err
		}
	}
	return nil
}
