package access

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// TestFeistelInverse: forward stays in range, and backward undoes it, for any F, seed and epoch.
func TestFeistelInverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := rapid.OneOf(rapid.IntRange(1, 300), rapid.IntRange(1, maxSamples)).Draw(t, "F")
		k := newDomain(f).key(rapid.Uint64().Draw(t, "seed"),
			rapid.Uint64Range(0, 1<<32).Draw(t, "epoch"))
		x := uint32(rapid.IntRange(0, f-1).Draw(t, "x"))
		y := k.forward(x)
		if int(y) >= f || k.backward(y) != x {
			t.Fatalf("F=%d: %d -> %d -> %d", f, x, y, k.backward(y))
		}
	})
}

// TestFeistelBijection visits everything, for sizes around squares, and the very small.
func TestFeistelBijection(t *testing.T) {
	for _, f := range []int{
		1, 2, 3, 5, 16, 17, 255, 256, 257, 1023, 1024, 1025, 9999, 65536,
		100003,
	} {
		k := newDomain(f).key(1, 2)
		seen := make([]bool, f)
		for x := range f {
			y := k.forward(uint32(x))
			if seen[y] {
				t.Fatalf("F=%d: %d comes twice", f, y)
			}
			seen[y] = true
		}
	}
}

// chiSquare returns how many standard deviations the chi-square statistic of counts that
// should all be alike lies above its mean.
func chiSquare(counts []int) float64 {
	total := 0
	for _, c := range counts {
		total += c
	}
	want, sum := float64(total)/float64(len(counts)), 0.0
	for _, c := range counts {
		sum += (float64(c) - want) * (float64(c) - want) / want
	}
	df := float64(len(counts) - 1)
	return (sum - df) / math.Sqrt(2*df)
}

// sane is how many standard deviations a statistic may be off. The seeds are fixed, so it either is
// or is not; five happen by chance once in millions, and a biased shuffle is off by far more.
const sane = 5

func checkUniform(t *testing.T, what string, counts []int) {
	t.Helper()
	if z := chiSquare(counts); math.Abs(z) > sane {
		t.Errorf("%s: chi-square is %.1f standard deviations off", what, z)
	}
}

// TestSmallPermutations: all 3! orders of three samples come equally often over epochs.
func TestSmallPermutations(t *testing.T) {
	for _, f := range []int{2, 3, 4} {
		counts := map[string]int{}
		d := newDomain(f)
		for epoch := range uint64(24000) {
			k := d.key(11, epoch)
			order := make([]uint32, f)
			for x := range order {
				order[x] = k.forward(uint32(x))
			}
			counts[fmt.Sprint(order)]++
		}
		var list []int
		for _, c := range counts {
			list = append(list, c)
		}
		if want := int(math.Gamma(float64(f) + 1)); len(list) != want {
			t.Errorf("F=%d: %d orders of %d", f, len(list), want)
		}
		checkUniform(t, fmt.Sprintf("orders of %d", f), list)
	}
}

// TestPositions: over epochs, a sample lies everywhere equally often, and
// every place of an epoch gets every range of samples equally often.
func TestPositions(t *testing.T) {
	for _, f := range []int{97, 10_000} {
		const bins, epochs = 97, 20_000
		d := newDomain(f)
		var there, back [3][bins]int
		for epoch := range uint64(epochs) {
			k := d.key(5, epoch)
			for i, x := range []int{0, f / 2, f - 1} {
				there[i][int(k.forward(uint32(x)))*bins/f]++
				back[i][int(k.backward(uint32(x)))*bins/f]++
			}
		}
		if f == bins {
			for i := range there {
				checkUniform(t, fmt.Sprintf("F=%d: what place %d holds", f, i), there[i][:])
				checkUniform(t, fmt.Sprintf("F=%d: where sample %d lies", f, i), back[i][:])
			}
			continue
		}
		for i := range there { // bins of 103 and 104: the difference is far below the noise
			checkUniform(t, fmt.Sprintf("F=%d: what place %d holds", f, i), there[i][:])
			checkUniform(t, fmt.Sprintf("F=%d: where sample %d lies", f, i), back[i][:])
		}
	}
}

// TestNeighbours: what follows a sample is independent of it. The difference of adjacent images
// modulo F is uniform, pooled and at each multiple of the halves' range, where a Feistel network
// with too few rounds shows its structure.
func TestNeighbours(t *testing.T) {
	const f, bins = 99_856, 64 // 316 squared: no cycle walking hides the structure
	d := newDomain(f)
	for _, gap := range []int{1, 2, 315, 316, 317, 632, f / 2} {
		var counts, near [bins]int
		for epoch := range uint64(10) {
			k := d.key(3, epoch)
			for x := range f {
				diff := (int(k.forward(uint32((x+gap)%f))) - int(k.forward(uint32(x))) + f) % f
				counts[diff*bins/f]++
				if diff <= bins {
					near[diff-1]++
				}
			}
		}
		checkUniform(t, fmt.Sprintf("differences at gap %d", gap), counts[:])
		checkUniform(t, fmt.Sprintf("differences of up to %d at gap %d", bins, gap), near[:])
	}
}

// TestEpochsAreUncorrelated: two epochs, or two seeds, place a sample independently of each other.
func TestEpochsAreUncorrelated(t *testing.T) {
	const f, grid = 100_000, 16
	d := newDomain(f)
	type draw struct{ seed, epoch uint64 }
	pairs := [][2]draw{
		{{1, 0}, {1, 1}},
		{{1, 0}, {2, 0}},
		{{1, 1}, {2, 0}},
		{{0, 0}, {0, 1}},
		{{1, 0}, {1 << 32, 0}},
		{{1, 0}, {1 << 63, 0}},
		{{7, 5}, {5, 7}},
	}
	for _, p := range pairs {
		a, b := d.key(p[0].seed, p[0].epoch), d.key(p[1].seed, p[1].epoch)
		var counts [grid * grid]int
		same := 0
		for x := range uint32(f) {
			ya, yb := a.forward(x), b.forward(x)
			counts[int(ya)*grid/f*grid+int(yb)*grid/f]++
			if ya == yb {
				same++
			}
		}
		checkUniform(t, fmt.Sprint("images under ", p), counts[:])
		if same > 8 { // Poisson with mean 1
			t.Errorf("%v: %d samples at the same place", p, same)
		}
	}
}

// TestFrequenciesAreBinomial: thesis 3.2.1. Every shuffle gives a node's
// access frequencies the distribution Binomial(E, 1/N).
func TestFrequenciesAreBinomial(t *testing.T) {
	const (
		f      = 10_000
		n      = 4
		epochs = 1000
	)
	for _, shuffle := range []Shuffle{Torch, Feistel} {
		s := mustNew(t, Spec{
			Samples:     f,
			Seed:        1,
			Epochs:      epochs,
			WorldSize:   n,
			GlobalBatch: 100,
			Shuffle:     shuffle,
		})
		freq := s.Frequencies([]int{1}, 0, epochs)
		above := 0
		for _, r := range freq {
			if r > 275 {
				above++
			}
		}
		// 322.9 expected (equation 3.8), with a standard deviation of 17.7.
		if above < 322-5*18 || above > 323+5*18 {
			t.Errorf("%s: %d samples are read more than 275 times, want about 323", shuffle, above)
		}
		// Chi-square against the probabilities, tails pooled.
		const lo, hi = 215, 285
		counts, probs := make([]float64, hi-lo+1), make([]float64, hi-lo+1)
		lg := func(x int) float64 { v, _ := math.Lgamma(float64(x) + 1); return v }
		for k := 0; k <= epochs; k++ {
			probs[min(max(k, lo), hi)-lo] += math.Exp(lg(epochs) - lg(k) - lg(epochs-k) +
				float64(k)*math.Log(1.0/n) + float64(epochs-k)*math.Log(1-1.0/n))
		}
		for _, r := range freq {
			counts[min(max(int(r), lo), hi)-lo]++
		}
		sum := 0.0
		for i, p := range probs {
			sum += (counts[i] - f*p) * (counts[i] - f*p) / (f * p)
		}
		if df := float64(hi - lo); math.Abs(sum-df)/math.Sqrt(2*df) > sane {
			t.Errorf("%s: chi-square of the frequencies is %.0f with %.0f degrees of freedom",
				shuffle, sum, df)
		}
	}
}
