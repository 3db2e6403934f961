package storetest

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// Benchmark measures random reads and puts of samples of 3 KB and 110 KB.
func Benchmark(b *testing.B, factory Factory) {
	for _, size := range []int64{3_000, 110_000} {
		n := int(64 << 20 / size)
		ds := Uniform(1, n, size)
		data := Bytes(ds, 0)
		b.Run(fmt.Sprintf("Read/%dKB", size/1000), func(b *testing.B) {
			c := factory(b, 64<<20)
			s := Open(b, c, ds, 64<<20)
			for id := range n {
				if err := put(s, id, data); err != nil {
					b.Fatal(err)
				}
			}
			order := rand.New(rand.NewPCG(1, 1)).Perm(n)
			dst := make([]byte, size)
			b.SetBytes(size)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if err := s.Read(order[i%n], dst); err != nil {
					b.Fatal(err)
				}
				i++
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "samples/s")
			Close(b, s, c)
		})
		b.Run(fmt.Sprintf("Put/%dKB", size/1000), func(b *testing.B) {
			tag, id := byte(1), n
			c := factory(b, 64<<20)
			s := Open(b, c, ds, 64<<20)
			b.SetBytes(size)
			for b.Loop() {
				if id == n { // a new store, which evicts the old one
					Close(b, s)
					tag, id = tag%100+1, 0
					ds.Fingerprint[0] = tag
					s = Open(b, c, ds, 64<<20)
				}
				if err := put(s, id, data); err != nil {
					b.Fatal(err)
				}
				id++
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "samples/s")
			Close(b, s, c)
		})
	}
}
