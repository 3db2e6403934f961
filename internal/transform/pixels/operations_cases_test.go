package pixels

import (
	"image"
	"math"
	"math/rand/v2"
)

// operation is one of PIL's operations with its arguments, as testdata/operations.py takes them.
type operation struct {
	name   string
	args   []any
	run    func(e *Editor, dst, src *Image) error
	levels int // by which a sample may differ
}

// inPlace makes an operation of one that changes its image.
func inPlace(f func(k kernel, m *Image)) func(e *Editor, dst, src *Image) error {
	return func(e *Editor, dst, src *Image) error {
		src.CopyTo(dst)
		f(e.kernel, dst)
		return nil
	}
}

func mapped8(t table) func(e *Editor, dst, src *Image) error {
	return inPlace(func(k kernel, m *Image) { m.mapAll(k, t) })
}

// numbers are arguments for an operation: those at the edges first, then random ones.
type numbers struct {
	r *rand.Rand
	n int
}

func (n numbers) floats(low, high float64, edges ...float64) []float64 {
	for len(edges) < n.n {
		edges = append(edges, low+(high-low)*n.r.Float64())
	}
	return edges[:n.n]
}

func (n numbers) fill() [3]byte {
	if n.r.IntN(3) == 0 {
		return [3]byte{}
	}
	return [3]byte{byte(n.r.Uint32()), byte(n.r.Uint32()), byte(n.r.Uint32())}
}

// operations returns n of each operation on an image of this size, or as many as are different.
func (n numbers) operations(width, height int) []operation {
	var list []operation
	add := func(name string, run func(e *Editor, dst, src *Image) error, args ...any) {
		if args == nil {
			args = []any{}
		}
		list = append(list, operation{name: name, args: args, run: run})
	}
	add("invert", mapped8(inverted()))
	for _, flip := range []Flip{FlipHorizontal, FlipVertical, FlipHorizontal | FlipVertical} {
		add("mirror", inPlace(func(k kernel, m *Image) { m.mirror(k, flip) }), int(flip))
	}
	add("autocontrast", inPlace(autoContrast))
	add("equalize", inPlace(equalize))
	for bits := range 9 {
		add("posterize", mapped8(posterized(bits)), bits)
	}
	for _, threshold := range n.floats(0, 256, 0, 1, 127.5, 128, 255, 256, 300, -3) {
		add("solarize", mapped8(solarized(threshold)), threshold)
	}
	for i, threshold := range n.floats(0, 256, 128, 0, 256) {
		more := i * 110 / n.n
		add("solarize_add", mapped8(solarizeAdded(more, threshold)), more, threshold)
	}
	for _, channels := range []int{1, 3} {
		add("grayscale", func(e *Editor, dst, src *Image) error {
			dst.Reset(src.Width, src.Height, channels)
			src.gray(e.kernel, dst)
			return nil
		}, channels)
	}
	for _, factor := range n.floats(-0.5, 3, 0, 1, 0.5, 2, -1, -0.3, 1.0000001, 0.1, 1.9, 37, 1e6) {
		f := float32(factor)
		add("brightness", mapped8(blended(0, f)), factor)
		add("contrast", inPlace(func(k kernel, m *Image) { contrast(k, m, f) }), factor)
		add("color", inPlace(func(k kernel, m *Image) {
			if m.Channels == 3 {
				m.saturate(k, f)
			}
		}), factor)
		add("sharpness", func(e *Editor, dst, src *Image) error {
			e.Sharpness(dst, src, f)
			return nil
		}, factor)
	}
	for _, factor := range n.floats(-0.5, 0.5, -0.5, 0.5, 0, 0.001, -0.1) {
		add("hue", inPlace(func(k kernel, m *Image) {
			if m.Channels == 3 {
				m.turn(k, byte(int(factor*255)))
			}
		}), factor)
	}
	n.blurs(add)
	n.warps(width, height, add)
	n.rotations(width, height, add)
	for range n.n {
		box := image.Rect(n.r.IntN(width+1), n.r.IntN(height+1), n.r.IntN(width+1),
			n.r.IntN(height+1))
		colour := n.fill()
		add("erase", inPlace(func(_ kernel, m *Image) { Erase(m, box, colour[:]) }),
			box.Min.X, box.Min.Y, box.Max.X, box.Max.Y, colour)
		at := image.Pt(n.r.IntN(3*width+1)-width, n.r.IntN(3*height+1)-height)
		add("paste", func(_ *Editor, dst, src *Image) error {
			src.CopyTo(dst)
			Paste(dst, src, at)
			return nil
		}, at.X, at.Y)
	}
	return list
}

type adder func(name string, run func(e *Editor, dst, src *Image) error, args ...any)

func (n numbers) blurs(add adder) {
	for i, x := range n.floats(0.1, 5, 0, 1e-6, 0.1, 0.5, 1, 2, 10, 40, 300, -1) {
		y := x
		if i%4 == 3 {
			y = 5 * n.r.Float64()
		}
		add("blur", func(e *Editor, dst, src *Image) error {
			e.GaussianBlur(dst, src, float32(x), float32(y))
			return nil
		}, x, y)
	}
}

// convolutions are like operations: torchvision's blur, of which a level may differ.
func (n numbers) convolutions() (list []operation) {
	for i, sigma := range n.floats(0.1, 2, 0.1, 1, 2, 5) {
		size := [2]int{1 + 2*n.r.IntN(12), 1 + 2*n.r.IntN(12)}
		name := [2]string{"convolve", "convolve_v2"}[i&1]
		run := func(e *Editor, dst, src *Image) error {
			return e.Convolve(dst, src, GaussianKernel(nil, size[0], sigma, i&1 == 1),
				GaussianKernel(nil, size[1], sigma+0.1, i&1 == 1))
		}
		list = append(list, operation{name, []any{size, [2]float64{sigma, sigma + 0.1}}, run, 1})
	}
	return list
}

// matrices of six numbers: those of timm's and torchvision's operations, random and degenerate
// ones.
func (n numbers) matrices(width, height int) [][6]float64 {
	w := float64(width)
	h := float64(height)
	list := [][6]float64{
		{1, 0, 0, 0, 1, 0},
		{1, 0.3, 0, 0, 1, 0},
		{1, 0, 0, -0.21, 1, 0},
		{1, 0, 0.45 * w, 0, 1, 0},
		{1, 0, 0, 0, 1, -0.37 * h},
		{1, 0, 3, 0, 1, 0},
		{0, 0, 0, 0, 0, 0},
		{-1, 0, w, 0, -1, h},
		{0, 1, 0, 1, 0, 0},
		{0.5, 0, 0, 0, 2, 0},
		{1e9, 1e8, -1e9, 1, 1, 0},
		{1, 1e-9, 0, 1e-9, 1, 0},
		{40000, 1, 0, 1, 40000, 0},
		{1e300, 1e300, 0, 0, 1, 0},
		{1, 1e-320, 0, 0, 1, 0},
	}
	for len(list) < n.n {
		angle := (n.r.Float64() - 0.5) * math.Pi
		if n.r.IntN(3) > 0 {
			angle /= 6
		}
		sin, cos := math.Sincos(angle)
		scale := 0.5 + n.r.Float64()
		shear := n.r.Float64() - 0.5
		m := [6]float64{
			cos * scale, (sin + shear) * scale, 0, -sin * scale, cos * scale, 0,
		}
		m[2] = w/2 - m[0]*w/2 - m[1]*h/2 + (n.r.Float64()-0.5)*w/3
		m[5] = h/2 - m[3]*w/2 - m[4]*h/2 + (n.r.Float64()-0.5)*h/3
		list = append(list, m)
	}
	return list[:n.n]
}

func (n numbers) warps(width, height int, add adder) {
	for i, m := range n.matrices(width, height) {
		w := width
		h := height
		if i%5 == 4 {
			w, h = 1+n.r.IntN(2*width), 1+n.r.IntN(2*height)
		}
		fill := n.fill()
		p := [8]float64{m[0], m[1], m[2], m[3], m[4], m[5]}
		if i%7 != 6 {
			p[6] = (n.r.Float64() - 0.3) / float64(width)
			p[7] = (n.r.Float64() - 0.3) / float64(height)
		}
		if i%11 == 10 {
			p[6], p[7] = -2, 0 // 0 in the middle of the first pixel: infinite, or not a number
		}
		for _, f := range []Filter{Nearest, Bilinear, Bicubic} {
			add("affine", func(e *Editor, dst, src *Image) error {
				e.Affine(dst, src, w, h, m, f, fill)
				return nil
			}, w, h, m, f.String(), fill)
			add("perspective", func(e *Editor, dst, src *Image) error {
				e.Perspective(dst, src, w, h, p, f, fill)
				return nil
			}, w, h, p, f.String(), fill)
		}
	}
}

func (n numbers) rotations(width, height int, add adder) {
	for i, angle := range n.floats(-40, 40, 0, 90, 180, 270, 360, -90, 45, 30, 1, -1e-9, 450, 135) {
		fill := n.fill()
		f := [3]Filter{Nearest, Bilinear, Bicubic}[i%3]
		expand := i%2 == 1
		var center *[2]float64
		if i%5 == 4 {
			center = &[2]float64{n.r.Float64() * float64(width), float64(n.r.IntN(height))}
		}
		add("rotate", func(e *Editor, dst, src *Image) error {
			e.Rotate(dst, src, angle, f, expand, center, fill)
			return nil
		}, angle, f.String(), expand, center, fill)
	}
}
