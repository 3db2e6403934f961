package access

import "testing"

func benchStream(b *testing.B, f int, shuffle Shuffle) *Stream {
	s, err := New(Spec{Samples: f, Seed: 42, WorldSize: 8, GlobalBatch: 1024, Shuffle: shuffle})
	if err != nil {
		b.Fatal(err)
	}
	return s
}

func perElement(b *testing.B, f int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(f), "ns/element")
}

func BenchmarkTorchEpoch(b *testing.B) {
	for name, f := range map[string]int{"50k": 50_000, "1.3M": 1_300_000, "14.2M": 14_200_000} {
		b.Run(name, func(b *testing.B) {
			s, buf := benchStream(b, f, Torch), make([]int32, f)
			for b.Loop() {
				s.epoch(1, buf)
			}
			perElement(b, f)
		})
	}
}

func BenchmarkFeistel(b *testing.B) {
	const f = 1_300_000
	e := benchStream(b, f, Feistel).Epoch(1)
	var sum uint32
	b.Run("forward", func(b *testing.B) {
		for b.Loop() {
			for x := range uint32(f) {
				sum += e.keyed.forward(x)
			}
		}
		perElement(b, f)
	})
	b.Run("backward", func(b *testing.B) {
		for b.Loop() {
			for x := range uint32(f) {
				sum += e.keyed.backward(x)
			}
		}
		perElement(b, f)
	})
	_ = sum
}

func BenchmarkBatch(b *testing.B) {
	for _, shuffle := range []Shuffle{Torch, Feistel} {
		b.Run(string(shuffle), func(b *testing.B) {
			s := benchStream(b, 1_300_000, shuffle)
			e := s.Epoch(0)
			dst := make([]int32, 0, 128)
			step := 0
			for b.Loop() {
				dst = e.Batch(dst[:0], 3, step)
				if step++; step == s.Steps() {
					step = 0
				}
			}
			perElement(b, 128)
		})
	}
}

func BenchmarkMixtureEpoch(b *testing.B) {
	for name, size := range map[string]int{"14.2M": 14_200_000, "1.3M": 1_300_000} {
		b.Run(name, func(b *testing.B) {
			const entries = 1_000_000
			s, err := New(Spec{
				Samples: size + 100_000, Seed: 42, WorldSize: 8, GlobalBatch: 1024, Shuffle: Feistel,
				Mixture: &Mixture{
					Sizes: []int{size, 100_000}, Weights: [][]uint64{{9, 1}}, Entries: entries,
				},
			})
			if err != nil {
				b.Fatal(err)
			}
			buf := make([]int32, entries)
			for b.Loop() {
				s.epoch(50, buf)
			}
			perElement(b, entries)
		})
	}
}
