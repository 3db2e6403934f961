//go:build cgo && linux

package pixels

import (
	"image"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
)

// guarded returns n bytes between pages that end the process if anything touches them: at the end
// of what lies between, or at its start.
func guarded(t *testing.T, n int, atEnd bool) []byte {
	t.Helper()
	page := os.Getpagesize()
	inside := (n + page - 1) / page * page
	all, err := syscall.Mmap(-1, 0, inside+2*page, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Munmap(all) })
	for _, guard := range [][]byte{all[:page], all[page+inside:]} {
		if err := syscall.Mprotect(guard, syscall.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	begin := page
	if atEnd {
		begin += inside - n
	}
	return all[begin : begin+n : begin+n]
}

// guardedImage is an image of noise in such bytes, with a padding after each row but the last.
func guardedImage(t *testing.T, r *rand.Rand, width, height, channels, padding int,
	atEnd bool,
) Image {
	stride := width*channels + padding
	m := Image{guarded(t, stride*(height-1)+width*channels, atEnd), width, height, channels, stride}
	for i := range m.Pix {
		m.Pix[i] = byte(r.Uint32())
	}
	return m
}

// TestResizeStaysInside: no kernel touches what lies before or after an image, whatever its size,
// or what lies after the result.
func TestResizeStaysInside(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	edges := []int{1, 2, 3, 4, 5, 7, 10, 16, 17, 21, 22, 33, 64, 100}
	edge := func() int { return edges[r.IntN(len(edges))] }
	for n := range 600 {
		width := edge()
		height := edge()
		w := edge()
		h := edge()
		channels := 1 + 2*r.IntN(2)
		f := Filter(r.IntN(6))
		window := image.Rect(0, 0, w, h)
		if n%3 == 0 {
			window.Max.X, window.Min.Y = 1+r.IntN(w), r.IntN(h)
		}
		need := Support(width, height, w, h, window, f)
		for _, atEnd := range []bool{true, false} {
			src := guardedImage(t, r, need.Dx(), need.Dy(), channels, r.IntN(2)*5, atEnd)
			var reference []byte
			for k := inGo; k <= plain+kernel(level); k++ {
				dst := Image{Pix: guarded(t, window.Dx()*window.Dy()*channels, atEnd)}
				z := Resizer{kernel: k, Order: Order(n & 1)}
				z.ResizePart(&dst, &src, need.Min, width, height, w, h, window, f)
				if k == inGo {
					reference = dst.Pix
				} else if string(dst.Pix) != string(reference) {
					t.Fatalf("%dx%d of %d channels to %v of %dx%d, %v: kernel %d gives something "+
						"else than Go", width, height, channels, window, w, h, f, k)
				}
			}
		}
	}
}

// TestPackStaysInside: the same of packing.
func TestPackStaysInside(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, typ := range []Type{Uint8, Float16, BFloat16, Float32} {
		for _, layout := range []Layout{CHW, HWC} {
			target := Target{Type: typ, Layout: layout}
			if typ != Uint8 {
				target.Scale = Quotient
				target.Mean = []float32{.5, .4, .3}
				target.Std = []float32{.2, .3, .4}
			}
			p, err := NewPacker(target)
			if err != nil {
				t.Fatal(err)
			}
			for _, width := range []int{1, 2, 7, 8, 15, 16, 17, 24, 31, 33, 511, 512, 513, 529} {
				for _, channels := range []int{1, 3} {
					for flip := range Flip(4) {
						for _, atEnd := range []bool{true, false} {
							src := guardedImage(t, r, width, 2, channels, r.IntN(2)*3, atEnd)
							want := make([]byte, p.Size(width, 2, channels))
							p.packGo(want, &src, flip)
							for l := range level + 1 {
								got := guarded(t, len(want), atEnd)
								p.packC(l, got, &src, flip)
								if string(got) != string(want) {
									t.Fatalf("%+v, width %d, %d channels, flip %d, level %d: "+
										"something else than Go's", target, width, channels, flip,
										l)
								}
							}
						}
					}
				}
			}
		}
	}
}
