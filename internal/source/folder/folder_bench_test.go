package folder

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// BenchmarkRead reads warm files one after the other: open, read, close.
func BenchmarkRead(b *testing.B) {
	for _, size := range []int{3 << 10, 110 << 10} {
		b.Run(fmt.Sprintf("%dKB", size>>10), func(b *testing.B) {
			root := b.TempDir()
			const files = 100
			content := string(bytes.Repeat([]byte{'x'}, size))
			for i := range files {
				write(b, filepath.Join(root, "class", fmt.Sprintf("n01440764_%d.jpg", i)), content)
			}
			f := open(b, root, Options{})
			dst := make([]byte, size)
			ctx := context.Background()
			b.SetBytes(int64(size))
			b.ReportAllocs()
			id := 0
			for b.Loop() {
				if _, err := f.Read(ctx, id, dst); err != nil {
					b.Fatal(err)
				}
				id = (id + 1) % files
			}
		})
	}
}

// BenchmarkOpen opens a folder with and without its index: that of HDMLP_BENCH_FOLDER if it is set,
// otherwise one of 20 classes of 500 empty files.
func BenchmarkOpen(b *testing.B) {
	root := os.Getenv("HDMLP_BENCH_FOLDER")
	if root == "" {
		root = b.TempDir()
		for i := range 20 * 500 {
			write(b, filepath.Join(root, fmt.Sprintf("n%08d/%08d.jpg", i/500, i)), "")
		}
	}
	for _, rescan := range []bool{true, false} {
		name := map[bool]string{true: "scan", false: "index"}[rescan]
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f, err := Open(context.Background(), root, Options{Rescan: rescan})
				if err != nil {
					b.Fatal(err)
				}
				listed, all := f.Listed()
				if rescan == f.FromIndex() {
					b.Fatal("FromIndex is wrong")
				}
				b.ReportMetric(float64(f.Index().Len()), "samples")
				b.ReportMetric(float64(listed), "listed")
				b.ReportMetric(float64(all), "directories")
				b.ReportMetric(float64(f.Index().EncodedSize())/float64(f.Index().Len()),
					"B/sample")
				if err := f.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
