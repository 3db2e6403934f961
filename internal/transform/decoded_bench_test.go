package transform

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/transform/forms"
)

// BenchmarkForms measures what forms save, on the images in the folder HDMLP_BENCH_IMAGES, by
// suffix: RandomResizedCrop(224), a flip and ToTensor, of each file, and of its form, whose digest
// is compared as stores do, in turns. It reports the medians per image, that of the ratios of a
// round over all files, what making a form takes, and how large the forms are.
func BenchmarkForms(b *testing.B) {
	dir := os.Getenv("HDMLP_BENCH_IMAGES")
	if dir == "" {
		b.Skip("set HDMLP_BENCH_IMAGES to a folder of images")
	}
	names, _ := filepath.Glob(filepath.Join(dir, "*.*"))
	files := map[string][][]byte{}
	for _, name := range names {
		src, err := os.ReadFile(name)
		if err != nil {
			b.Fatal(err)
		}
		files[filepath.Ext(name)] = append(files[filepath.Ext(name)], src)
	}
	for suffix, all := range files {
		b.Run(suffix, func(b *testing.B) { benchmarkForms(b, all) })
	}
}

func benchmarkForms(b *testing.B, files [][]byte) {
	var c forms.Converter
	defer c.Close()
	made, kinds := make([][]byte, len(files)), make([]forms.Kind, len(files))
	read, kept := 0, 0
	begin := time.Now()
	for i, src := range files {
		var err error
		if made[i], err = c.Convert(nil, src); err != nil {
			b.Fatal(err)
		}
		info, _ := forms.Read(made[i])
		kinds[i] = info.Kind
		read, kept = read+len(src), kept+len(made[i])
	}
	making := time.Since(begin)
	w := compiled(b, "RandomResizedCrop(224), RandomHorizontalFlip(), ToTensor()").Worker()
	defer w.Close()
	dst := make([]byte, w.program.Output().Bytes())
	round := func(formed bool, epoch int) float64 {
		begin := time.Now()
		for i, src := range files {
			w.Form(forms.AsRead)
			if formed {
				src = made[i]
				w.Form(kinds[i])
				if err := forms.Check(src); err != nil {
					b.Fatal(err)
				}
			}
			if err := w.Apply(dst, src, Key{Seed: 1, Epoch: epoch, Sample: i}); err != nil {
				b.Fatal(err)
			}
		}
		return time.Since(begin).Seconds() / float64(len(files)) * 1e6
	}
	round(true, 0)
	var of, from, ratio []float64
	for epoch := 0; b.Loop(); epoch += 2 {
		x, y := round(false, epoch), round(true, epoch)
		of, from = append(of, x), append(from, y)
		ratio = append(ratio, y/x)
	}
	for name, values := range map[string][]float64{
		"file-us": of, "form-us": from, "ratio": ratio,
	} {
		slices.Sort(values)
		b.ReportMetric(values[len(values)/2], name)
	}
	b.ReportMetric(making.Seconds()/float64(len(files))*1e6, "making-us")
	b.ReportMetric(float64(kept)/float64(read), "size")
}
