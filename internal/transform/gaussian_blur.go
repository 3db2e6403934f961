package transform

import "github.com/hdmlp/hdmlp/internal/transform/pixels"

// GaussianBlur blurs an image with a Gaussian kernel of a random deviation, within one level of
// torchvision's.
//
//	kernel_size  [width, height] in pixels, or a number for both; odd
//	sigma        [least, most] of the deviation in pixels, or a number
//	draws        "v1", or "v2", whose kernels differ in the last bits
var gaussianBlur = kind{
	name:   "GaussianBlur",
	params: []param{{"kernel_size", ""}, {"sigma", "[0.1, 2]"}, {"draws", `"v1"`}},
	joint:  ofImages,
	build: func(a *arguments) step {
		s := &blurredBy{v2: a.Apart()}
		s.width, s.height = 1, 1
		size := a.Wholes("kernel_size", 1, 1023, "a whole number or [width, height]", 1, 2)
		if len(size) > 0 {
			s.width, s.height = size[0], size[len(size)-1]
		}
		if s.width%2 == 0 || s.height%2 == 0 {
			a.Fault("kernel_size", "it must be odd")
		}
		sigma := a.Numbers("sigma", 1e-6, 1e6, "a number or [least, most]", 1, 2)
		if len(sigma) > 0 {
			s.from, s.to = sigma[0], sigma[len(sigma)-1]
		}
		return s
	},
}

type blurredBy struct {
	width, height int // of the kernel
	from, to      float64
	v2            bool
}

func (s *blurredBy) follow(k *known) error { return k.image() }

func (s *blurredBy) apply(v *view, d *draws) error {
	sigma := float64(d.Torch.Uniform(float32(s.from), float32(s.to)))
	v.note(Param{"sigma", sigma})
	v.bare = true
	w := v.w
	w.across = pixels.GaussianKernel(w.across, s.width, sigma, s.v2)
	w.down = pixels.GaussianKernel(w.down, s.height, sigma, s.v2)
	var fault error
	err := v.redraw(func(e *pixels.Editor, dst, src *pixels.Image) {
		if fault = e.Convolve(dst, src, w.across, w.down); fault != nil {
			src.CopyTo(dst)
		}
	})
	if fault != nil {
		return fault
	}
	return err
}
