package transform

import (
	"github.com/hdmlp/hdmlp/internal/transform/left"
	"github.com/hdmlp/hdmlp/internal/transform/pixels"
	"github.com/hdmlp/hdmlp/internal/transform/planned"
	"github.com/hdmlp/hdmlp/internal/transform/policy"
)

// RandomPerspective moves the corners of an image at random, with probability p (in float32).
//
//	distortion_scale     by how much of half an edge a corner may move, from 0 to 1
//	p                    the probability
//	interpolation, fill  as RandAugment's
var randomPerspective = kind{
	name: "RandomPerspective",
	params: []param{
		{"distortion_scale", "0.5"},
		{"p", "0.5"},
		{"interpolation", `"bilinear"`},
		{"fill", "0"},
	},
	build: func(a *arguments) step {
		motion := planned.ReadMotion(&a.Arguments)
		return &randomCorners{a.Number("distortion_scale", 0, 1), a.Chance("p"), motion}
	},
}

type randomCorners struct {
	distortion float64
	p          float32
	motion     policy.Motion
}

func (s *randomCorners) follow(k *known) error { return followMotion(k, s.motion) }

func (s *randomCorners) apply(v *view, d *draws) error {
	if d.Torch.Rand() >= s.p {
		return nil
	}
	width, height := v.size()
	across := int(s.distortion*float64(width/2)) + 1
	down := int(s.distortion*float64(height/2)) + 1
	var to [4][2]float64 // from the first corner clockwise
	for i := range to {
		x, y := d.Torch.Below(across), d.Torch.Below(down)
		if i == 1 || i == 2 {
			x += width - across
		}
		if i >= 2 {
			y += height - down
		}
		to[i] = [2]float64{float64(x), float64(y)}
		v.note(Param{"x", to[i][0]}, Param{"y", to[i][1]})
	}
	right, bottom := float64(width-1), float64(height-1)
	m, sure := policy.Homography(to, [4][2]float64{{0, 0}, {right, 0}, {right, bottom}, {0, bottom}})
	if !sure && v.w.program.known.leaves() {
		return left.ErrRounding
	}
	return v.redraw(func(e *pixels.Editor, dst, src *pixels.Image) {
		e.Perspective(dst, src, src.Width, src.Height, m, s.motion.Filter, s.motion.Fill.Levels)
	})
}
