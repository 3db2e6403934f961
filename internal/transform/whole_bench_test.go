package transform

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// BenchmarkWhole measures what it costs to decide whether a file is damaged, on the images in the
// folder HDMLP_BENCH_IMAGES, by suffix: RandomResizedCrop(224), a flip and ToTensor of each file,
// in turns with and without. It reports the medians per image, and the median of the ratios of a
// round over all files.
func BenchmarkWhole(b *testing.B) {
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
		b.Run(suffix, func(b *testing.B) {
			w := compiled(b, "RandomResizedCrop(224), RandomHorizontalFlip(), ToTensor()").Worker()
			defer w.Close()
			dst := make([]byte, w.program.Output().Bytes())
			round := func(whole bool, epoch int) float64 {
				w.Whole(whole)
				begin := time.Now()
				for i, src := range all {
					if err := w.Apply(dst, src, Key{Seed: 1, Epoch: epoch, Sample: i}); err != nil {
						b.Fatal(err)
					}
				}
				return time.Since(begin).Seconds() / float64(len(all)) * 1e6
			}
			round(true, 0)
			var with, without, ratio []float64
			for epoch := 0; b.Loop(); epoch++ {
				x, y := round(epoch%2 == 0, epoch), round(epoch%2 != 0, epoch)
				if epoch%2 != 0 {
					x, y = y, x
				}
				with, without = append(with, x), append(without, y)
				ratio = append(ratio, x/y)
			}
			for name, values := range map[string][]float64{
				"with-us": with, "without-us": without, "ratio": ratio,
			} {
				slices.Sort(values)
				b.ReportMetric(values[len(values)/2], name)
			}
		})
	}
}
