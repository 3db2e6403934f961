//go:build cgo

package codec

import (
	"image"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/transform/pixels"
)

// BenchmarkForms measures RandomResizedCrop(224) to float32 on the JPEGs in the folder
// HDMLP_BENCH_JPEGS, from the files and from their compact forms, in turn, in CPU time per image;
// what both take to be decoded alone; what packing and unpacking take; and how large the forms are.
// Decoders of forms use the instructions that the benchmark is named after, as far as the processor
// has them.
func BenchmarkForms(b *testing.B) {
	dir := os.Getenv("HDMLP_BENCH_JPEGS")
	if dir == "" {
		b.Skip("set HDMLP_BENCH_JPEGS to a folder of JPEGs")
	}
	names, _ := filepath.Glob(filepath.Join(dir, "*.jpg"))
	files, forms := make([][]byte, len(names)), make([]Packed, len(names))
	var d Decoder
	defer d.Close()
	var bytes, packed int
	for i, name := range names {
		files[i] = read(b, "", name)
		if err := d.Pack(&forms[i], files[i], math.MaxInt32); err != nil {
			b.Fatal(err)
		}
		bytes += len(files[i])
		packed += len(forms[i].Header) + len(forms[i].Head) + len(forms[i].Body) +
			len(forms[i].Tail)
	}
	packer, err := pixels.NewPacker(pixels.Target{
		Type: pixels.Float32, Scale: pixels.Quotient,
		Mean: []float32{.485, .456, .406}, Std: []float32{.229, .224, .225},
	})
	if err != nil {
		b.Fatal(err)
	}
	for level, name := range []string{"all", "portable", "bmi2"} {
		b.Run(name, func(b *testing.B) {
			d.jpeg.level = level
			benchmarkForms(b, &d, packer, files, forms)
			b.ReportMetric(float64(packed)/float64(bytes), "size")
		})
	}
}

func benchmarkForms(b *testing.B, d *Decoder, packer *pixels.Packer, files [][]byte,
	forms []Packed,
) {
	var m, small pixels.Image
	var resizer pixels.Resizer
	dst := make([]byte, 4*3*224*224)
	r := rand.New(rand.NewPCG(1, 2))
	var again []byte
	var pack Packed
	const both = 2
	const packing, unpacking = 2, 3
	var whole [both]time.Duration
	var alone [4]time.Duration
	for i := 0; b.Loop(); i++ {
		n := i % len(files)
		h, err := d.Header(files[n])
		if err != nil {
			b.Fatal(err)
		}
		want := Want{Region: randomCrop(r, h.Width, h.Height)}
		for k := range both {
			form := (k + i) & 1
			t0 := cpu()
			var origin image.Point
			if form == 1 {
				origin, err = d.DecodePacked(&m, &forms[n], want)
			} else {
				origin, err = d.Decode(&m, files[n], want)
			}
			if err != nil {
				b.Fatal(err)
			}
			t1 := cpu()
			part := m.Sub(want.Region.Sub(origin))
			resizer.Resize(&small, &part, 224, 224, image.Rect(0, 0, 224, 224), pixels.Bilinear)
			packer.Pack(dst, &small, pixels.Flip(i&1))
			whole[form] += cpu() - t0
			alone[form] += t1 - t0
		}
		t0 := cpu()
		if err := d.Pack(&pack, files[n], math.MaxInt32); err != nil {
			b.Fatal(err)
		}
		t1 := cpu()
		alone[packing] += t1 - t0
		if pack.ScanSize > 0 {
			again, _ = d.Unpack(again[:0], &pack)
			alone[unpacking] += cpu() - t1
		}
	}
	micros := func(t time.Duration) float64 { return float64(t.Microseconds()) / float64(b.N) }
	b.ReportMetric(micros(whole[0]), "jpeg-us")
	b.ReportMetric(micros(whole[1]), "form-us")
	b.ReportMetric(micros(whole[1])/micros(whole[0]), "ratio")
	b.ReportMetric(micros(alone[0]), "jpeg-decode-us")
	b.ReportMetric(micros(alone[1]), "form-decode-us")
	b.ReportMetric(micros(alone[packing]), "pack-us")
	b.ReportMetric(micros(alone[unpacking]), "unpack-us")
}
