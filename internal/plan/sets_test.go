package plan

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestSetRoundTrip checks that a set comes back as it was, in ascending order, whatever its size.
func TestSetRoundTrip(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, samples := range []int{1, 7, 8, 9, 1000, 100_000} {
		for _, share := range []float64{0, 0.001, 0.5, 1} {
			var ids []int32
			for id := range int32(samples) {
				if random.Float64() < share {
					ids = append(ids, id)
				}
			}
			shuffled := slices.Clone(ids)
			random.Shuffle(len(ids), func(i, j int) {
				shuffled[i], shuffled[j] = shuffled[j], shuffled[i]
			})
			got, err := UnpackSet(PackSet(shuffled), samples)
			if err != nil || !slices.Equal(got, ids) {
				t.Errorf("%d of %d samples: %d came back, %v", len(ids), samples, len(got), err)
			}
		}
	}
}

// TestWhatIsNoSetIsRefused checks that neither rubbish nor samples that the dataset does not have
// are taken in, nor more memory than the dataset needs.
func TestWhatIsNoSetIsRefused(t *testing.T) {
	for name, packed := range map[string][]byte{
		"rubbish":          []byte("rubbish"),
		"cut off":          PackSet([]int32{1, 500})[:3],
		"one sample more":  PackSet([]int32{1000}),
		"a byte too many":  PackSet([]int32{1008}),
		"far more samples": PackSet([]int32{1 << 28}),
	} {
		if ids, err := UnpackSet(packed, 1000); err == nil {
			t.Errorf("%s: %d samples", name, len(ids))
		}
	}
}
