package codec

import (
	"image"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// cpu returns the CPU time of the process.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// randomCrop is torchvision's RandomResizedCrop.get_params with its defaults.
func randomCrop(r *rand.Rand, w, h int) image.Rectangle {
	for range 10 {
		area := float64(w*h) * (0.08 + 0.92*r.Float64())
		ratio := math.Exp((2*r.Float64() - 1) * math.Log(4.0/3))
		cw, ch := int(math.Round(math.Sqrt(area*ratio))), int(math.Round(math.Sqrt(area/ratio)))
		if cw > 0 && cw <= w && ch > 0 && ch <= h {
			x, y := r.IntN(w-cw+1), r.IntN(h-ch+1)
			return image.Rect(x, y, x+cw, y+ch)
		}
	}
	return image.Rect(0, 0, w, h)
}

// BenchmarkPipeline measures this layer on the JPEGs in the folder HDMLP_BENCH_JPEGS, in CPU time
// per image: decoding, resizing and packing, and all together. crop is RandomResizedCrop(224) and a
// flip, center is Resize(256) and CenterCrop(224), fast is crop with DCT scaling to no less than
// twice 224; all end as normalised float32.
func BenchmarkPipeline(b *testing.B) {
	dir := os.Getenv("HDMLP_BENCH_JPEGS")
	if dir == "" {
		b.Skip("set HDMLP_BENCH_JPEGS to a folder of JPEGs")
	}
	names, _ := filepath.Glob(filepath.Join(dir, "*.jpg"))
	var files [][]byte
	for _, name := range names {
		src, err := os.ReadFile(name)
		if err != nil {
			b.Fatal(err)
		}
		files = append(files, src)
	}
	packer, err := pixels.NewPacker(pixels.Target{
		Type: pixels.Float32, Scale: pixels.Quotient,
		Mean: []float32{.485, .456, .406}, Std: []float32{.229, .224, .225},
	})
	if err != nil {
		b.Fatal(err)
	}
	for _, kind := range []string{"crop", "center", "fast"} {
		for _, plain := range []bool{false, true} {
			name := kind
			if plain {
				name += "/libjpeg"
			}
			b.Run(name, func(b *testing.B) {
				var d Decoder
				defer d.Close()
				setPlain(&d, plain)
				var m, small pixels.Image
				var resizer pixels.Resizer
				dst := make([]byte, 4*3*224*224)
				r := rand.New(rand.NewPCG(1, 2))
				var stages [3]time.Duration
				window := image.Rect(0, 0, 224, 224)
				start := cpu()
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					src := files[i%len(files)]
					t0 := time.Now()
					h, err := d.Header(src)
					if err != nil {
						b.Fatal(err)
					}
					want := Want{Scale: 8}
					var part pixels.Image
					w, ht := 224, 224
					switch kind {
					case "center":
						w, ht = 256*h.Width/min(h.Width, h.Height),
							256*h.Height/min(h.Width, h.Height)
						window = image.Rect(0, 0, 224, 224).Add(image.Pt((w-224)/2, (ht-224)/2))
						want.Region = pixels.Support(h.Width, h.Height, w, ht, window,
							pixels.Bilinear)
					case "fast":
						crop := randomCrop(r, h.Width, h.Height)
						for want.Scale > 1 && crop.Dx()*want.Scale/16 >= 2*224 &&
							crop.Dy()*want.Scale/16 >= 2*224 {
							want.Scale /= 2
						}
						n := want.Scale
						want.Region = image.Rect(crop.Min.X*n/8, crop.Min.Y*n/8, (crop.Max.X*n+7)/8,
							(crop.Max.Y*n+7)/8)
					case "crop":
						want.Region = randomCrop(r, h.Width, h.Height)
					}
					origin, err := d.Decode(&m, src, want)
					if err != nil {
						b.Fatal(err)
					}
					t1 := time.Now()
					if kind == "center" {
						resizer.ResizePart(&small, &m, origin, h.Width, h.Height, w, ht, window,
							pixels.Bilinear)
					} else {
						part = m.Sub(want.Region.Sub(origin))
						resizer.Resize(&small, &part, w, ht, window, pixels.Bilinear)
					}
					t2 := time.Now()
					packer.Pack(dst, &small, pixels.Flip(i&1))
					t3 := time.Now()
					stages[0] += t1.Sub(t0)
					stages[1] += t2.Sub(t1)
					stages[2] += t3.Sub(t2)
				}
				b.ReportMetric(float64((cpu()-start).Microseconds())/float64(b.N), "cpu-us/op")
				for i, s := range []string{"decode-us", "resize-us", "pack-us"} {
					b.ReportMetric(float64(stages[i].Microseconds())/float64(b.N), s)
				}
			})
		}
	}
}
