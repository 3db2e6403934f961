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
	p, err := NewPacker(Target{Type: Float32, Unit: true})
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

// TestNewPacker: what makes no sense is refused.
func TestNewPacker(t *testing.T) {
	for _, target := range []Target{
		{Type: Uint8, Unit: true},
		{Type: Float32, Mean: []float32{1}},
		{Type: Float32, Mean: []float32{1, 2}, Std: []float32{1, 2}},
		{Type: Float32, Mean: []float32{1}, Std: []float32{0}},
	} {
		if _, err := NewPacker(target); err == nil {
			t.Errorf("%+v is taken", target)
		}
	}
}
