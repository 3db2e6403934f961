package cache

import (
	"fmt"
	"slices"
	"testing"

	"github.com/hdmlp/hdmlp/internal/model"
)

// BenchmarkFileClass measures fetches of samples that a file class holds and the page cache has.
func BenchmarkFileClass(b *testing.B) {
	for _, size := range []int{3000, 110_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			const samples = 256
			o := rigOptions{
				sizes: slices.Repeat([]int{size}, samples), threads: 1,
				file: int64(size * samples), dir: b.TempDir(),
				known: map[string]model.Known{"source": {
					Coefficients: model.Coefficients{Latency: 1}, Origin: model.Given,
				}},
			}
			g := newRig(b, o)
			defer g.close()
			r, dst := &Request{Due: soon(0)}, make([]byte, size)
			for id := range samples {
				if _, _, err := g.fetched(b, r, id); err != nil {
					b.Fatal(err)
				}
			}
			g.cache.Flush()
			b.SetBytes(int64(size))
			id := 0
			for b.Loop() {
				s, err := g.cache.Fetch(b.Context(), r, id, dst)
				if err != nil || s.From != FirstClass {
					b.Fatalf("sample %d is from %v: %v", id, s.From, err)
				}
				id = (id + 1) % samples
			}
		})
	}
}
