package pixels

import (
	"image"
	"testing"
)

// TestNoAllocations: sizes that were seen before, or smaller ones, cost no memory.
func TestNoAllocations(t *testing.T) {
	if sanitized {
		t.Skip("what the address sanitizer watches is allocated")
	}
	src := noise(300, 200, 3)
	p, err := NewPacker(Target{Type: Float32, Scale: Quotient})
	if err != nil {
		t.Fatal(err)
	}
	var r Resizer
	var dst Image
	out := make([]byte, p.Size(224, 224, 3))
	i := 0
	step := func() {
		i = i%6 + 1
		part := src.Sub(image.Rect(i, 0, 300-i, 200))
		r.Resize(&dst, &part, 224, 224, image.Rect(0, 0, 224, 224), Filter(i%6))
		p.Pack(out, &dst, FlipHorizontal)
	}
	for range 6 {
		step()
	}
	if n := testing.AllocsPerRun(12, step); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestNoAllocationsOfOperations: the same of PIL's operations.
func TestNoAllocationsOfOperations(t *testing.T) {
	if sanitized {
		t.Skip("what the address sanitizer watches is allocated")
	}
	src := noise(70, 50, 3)
	var m, dst, gray Image
	var e Editor
	across := GaussianKernel(nil, 9, 1, false)
	center := [2]float64{3, 4}
	fill := [3]byte{1, 2, 3}
	step := func() {
		src.CopyTo(&m)
		Invert(&m)
		Posterize(&m, 3)
		Solarize(&m, 100)
		SolarizeAdd(&m, 20, 128)
		Brightness(&m, 1.2)
		Contrast(&m, 1.2)
		Color(&m, 1.2)
		Mirror(&m, FlipHorizontal|FlipVertical)
		AutoContrast(&m)
		Equalize(&m)
		Erase(&m, image.Rect(1, 2, 9, 9), fill[:])
		Paste(&m, &dst, image.Pt(5, 6))
		Gray(&gray, &m, 1)
		e.Sharpness(&dst, &m, 1.5)
		for _, f := range []Filter{Nearest, Bilinear, Bicubic} {
			e.Affine(&dst, &m, 70, 50, [6]float64{1, 0, 3, 0, 1, 0}, f, fill)
			e.Rotate(&dst, &m, 20, f, false, &center, fill)
			e.Perspective(&dst, &m, 70, 50, [8]float64{1, 0, 3, 0, 1, 0, 1e-3, 0}, f, fill)
		}
		e.Rotate(&dst, &m, 90, Nearest, true, nil, fill)
		e.GaussianBlur(&dst, &m, 1, 2)
		if err := e.Convolve(&dst, &m, across, across); err != nil {
			t.Fatal(err)
		}
	}
	step()
	if n := testing.AllocsPerRun(5, step); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestNewPacker: what makes no sense is refused.
func TestNewPacker(t *testing.T) {
	for _, target := range []Target{
		{Type: Uint8, Scale: Quotient},
		{Type: Float32, Mean: []float32{1}},
		{Type: Float32, Mean: []float32{1, 2}, Std: []float32{1, 2}},
		{Type: Float32, Mean: []float32{1}, Std: []float32{0}},
	} {
		if _, err := NewPacker(target); err == nil {
			t.Errorf("%+v is taken", target)
		}
	}
}
