package pixels

import (
	"fmt"
	"image"
	"math/rand/v2"
	"testing"
)

func noise(width, height, channels int) Image {
	var m Image
	m.Reset(width, height, channels)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range m.Pix {
		m.Pix[i] = byte(r.Uint32())
	}
	return m
}

func BenchmarkResize(b *testing.B) {
	src := noise(500, 375, 3)
	var dst Image
	var r Resizer
	for _, size := range []image.Rectangle{
		image.Rect(100, 50, 400, 300),
		image.Rect(0, 0, 500, 375), image.Rect(200, 100, 300, 190),
	} {
		part := src.Sub(size)
		for _, f := range []Filter{Bilinear, Bicubic} {
			b.Run(fmt.Sprintf("%v/%v", size.Size(), f), func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					// Another size each time, as random crops have.
					p := part
					p.Width -= i & 1
					r.Resize(&dst, &p, 224, 224, image.Rect(0, 0, 224, 224), f)
				}
			})
		}
	}
}

func BenchmarkPack(b *testing.B) {
	src := noise(224, 224, 3)
	for _, typ := range []Type{Uint8, Float16, BFloat16, Float32} {
		for _, layout := range []Layout{CHW, HWC} {
			for _, flip := range []Flip{0, FlipHorizontal} {
				b.Run(fmt.Sprintf("%v/%d/%d", typ, layout, flip), func(b *testing.B) {
					t := Target{Type: typ, Layout: layout}
					if typ != Uint8 {
						t.Scale = Quotient
						t.Mean = []float32{.485, .456, .406}
						t.Std = []float32{.229, .224, .225}
					}
					p, err := NewPacker(t)
					if err != nil {
						b.Fatal(err)
					}
					dst := make([]byte, p.Size(224, 224, 3))
					b.SetBytes(int64(len(dst)))
					for b.Loop() {
						p.Pack(dst, &src, flip)
					}
				})
			}
		}
	}
}
