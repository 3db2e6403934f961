package policy

import (
	"math"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
	"github.com/hdmlp/hdmlp/internal/transform/random"
)

// Affine is an affine transform of torchvision: around a center, a rotation by an angle, a scale
// and a shear by two angles, in degrees; and a shift in pixels.
type Affine struct {
	Angle, Scale float64 // a scale of 0 is 1
	Shift, Shear [2]float64
	Center       *[2]float64 // nil: the image's
}

// Matrix returns the six numbers of PIL's AFFINE for an image of this size, with the operations of
// torchvision's _get_inverse_affine_matrix in their order.
func (a *Affine) Matrix(width, height int) (m [6]float64) {
	x := float64(width) * 0.5
	y := float64(height) * 0.5
	if a.Center != nil {
		x, y = a.Center[0], a.Center[1]
	}
	turn := radians(a.Angle)
	across, down := radians(a.Shear[0]), radians(a.Shear[1])
	sin, cos := pixels.SinCos(turn - down)
	straightSin, straightCos := pixels.SinCos(turn)
	_, leaning := pixels.SinCos(down)
	tan := pixels.Tan(across)
	// The rotation, with the shear and without the scale.
	first := cos / leaning
	second := float64(float64(-cos*tan)/leaning) - straightSin
	third := sin / leaning
	fourth := float64(float64(-sin*tan)/leaning) + straightCos

	scale := a.Scale
	if scale == 0 {
		scale = 1
	}
	m = [6]float64{fourth / scale, -second / scale, 0, -third / scale, first / scale, 0}
	m[2] += float64(m[0]*(-x-a.Shift[0])) + float64(m[1]*(-y-a.Shift[1]))
	m[5] += float64(m[3]*(-x-a.Shift[0])) + float64(m[4]*(-y-a.Shift[1]))
	m[2] += x
	m[5] += y
	return m
}

// radians converts degrees as Python's math.radians.
func radians(degrees float64) float64 { return degrees * (math.Pi / 180) }

// RandomAffine is the Policy of torchvision's RandomAffine.
type RandomAffine struct {
	From, To float64 // degrees
	// Move has the largest shares of the edges; Scale the least and largest factor; Shear those of
	// one angle or two, in degrees. nil: none.
	Move, Scale, Shear []float64
	Center             *[2]float64
	Motion             Motion
}

// Channels returns how many channels images must have at least.
func (p *RandomAffine) Channels() int { return p.Motion.Fill.channels() }

// Draw draws the transform.
func (p *RandomAffine) Draw(
	d *random.Draws, width, height int, act func(*Action) error,
) error {
	draw := func(from, to float64) float64 {
		return float64(d.Torch.Uniform(float32(from), float32(to)))
	}
	m := Affine{Angle: draw(p.From, p.To), Center: p.Center}
	if len(p.Move) == 2 {
		for i, edge := range [2]int{width, height} {
			most := p.Move[i] * float64(edge)
			m.Shift[i] = math.RoundToEven(draw(-most, most))
		}
	}
	if len(p.Scale) == 2 {
		m.Scale = draw(p.Scale[0], p.Scale[1])
	}
	for i := 0; i+1 < len(p.Shear); i += 2 {
		m.Shear[i/2] = draw(p.Shear[i], p.Shear[i+1])
	}
	return act(&Action{
		Kind: Move, Name: "degrees", Amount: m.Angle, Matrix: m.Matrix(width, height),
		Filter: p.Motion.Filter, Fill: p.Motion.Fill.Levels,
	})
}
