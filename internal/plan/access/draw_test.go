package access

import (
	"strings"

	"pgregory.net/rapid"
)

func mustNew(t interface{ Fatal(...any) }, spec Spec) *Stream {
	s, err := New(spec)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// drawnEpochs are those of a stream that drawStream draws.
const drawnEpochs = 6

// drawGiven draws a small stream of given epochs: what they have, each once.
func drawGiven(t *rapid.T) *Stream {
	f := rapid.IntRange(1, 120).Draw(t, "samples")
	epochs := rapid.SampledFrom([]int{0, drawnEpochs}).Draw(t, "epochs")
	var s *Stream
	var err error
	if rapid.Bool().Draw(t, "shared") {
		s, err = NewGivenShared(f, rapid.IntRange(1, 9).Draw(t, "ranks"),
			rapid.IntRange(1, 12).Draw(t, "batch"), rapid.IntRange(1, 30).Draw(t, "entries"),
			epochs)
	} else {
		s, err = NewGiven(f, rapid.SliceOfN(rapid.Int32Range(1, 20), 1, 12).Draw(t, "batches"),
			epochs)
	}
	if err != nil {
		t.Fatal(err)
	}
	n := s.Delivered()
	for e := range drawnEpochs {
		if err := s.Give(e,
			rapid.SliceOfN(rapid.Int32Range(0, int32(f-1)), n, n).Draw(t, "order")); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// drawStream draws a small stream of any kind.
func drawStream(t *rapid.T) *Stream {
	if rapid.IntRange(0, 3).Draw(t, "given") == 0 {
		return drawGiven(t)
	}
	for {
		f := rapid.IntRange(1, 120).Draw(t, "samples")
		var subset []int32
		if rapid.Bool().Draw(t, "a part") {
			subset = rapid.SliceOfN(rapid.Int32Range(0, int32(f-1)), 1, 150).Draw(t, "subset")
		}
		s, err := New(Spec{
			Samples:     f,
			Subset:      subset,
			Seed:        rapid.Uint64().Draw(t, "seed"),
			WorldSize:   rapid.IntRange(1, 9).Draw(t, "ranks"),
			GlobalBatch: rapid.IntRange(1, 50).Draw(t, "batch"),
			DropLast:    rapid.Bool().Draw(t, "drop last"),
			Shuffle: rapid.SampledFrom([]Shuffle{Torch, Feistel, Sequential}).Draw(t,
				"shuffle"),
			Scheme: rapid.SampledFrom([]Scheme{Strided, Uniform, Whole, Imbalanced}).Draw(t,
				"scheme"),
			Tail: rapid.SampledFrom([]Tail{Pad, Drop, Keep}).Draw(t, "tail"),
		})
		if err == nil {
			return s
		}
		if !strings.Contains(err.Error(), "nothing would be delivered") {
			t.Fatal(err)
		}
	}
}
