package transform

import (
	"math"
	"testing"
)

// TestDraws: the numbers are those that docs/SEMANTICS.md describes, for ever: a change of them
// changes every run.
func TestDraws(t *testing.T) {
	var d draws
	d.begin(Key{Seed: 42, Epoch: 3, Sample: 1000}, 1)
	for i, want := range []uint64{0xd8f3fdbd698a3d3e, 0xf52df784291ca355, 0x3e63b927a576ce35} {
		if got := d.next(); got != want {
			t.Errorf("number %d is %#x, want %#x", i, got, want)
		}
	}
	// SplitMix64 from state 0, as published.
	d = draws{}
	if a, b := d.next(), d.next(); a != 0xe220a8397b1dcdaf || b != 0x6e789e6aa1b965f4 {
		t.Errorf("SplitMix64(0) gives %#x, %#x", a, b)
	}
}

// TestDrawsDiffer: each part of the key, and the position, changes everything.
func TestDrawsDiffer(t *testing.T) {
	seen := map[uint64]bool{}
	n := 0
	for seed := range uint64(8) {
		for epoch := range 8 {
			for sample := range 32 {
				for position := range 8 {
					var d draws
					d.begin(Key{seed, epoch, sample}, position)
					for range 4 {
						seen[d.next()] = true
						n++
					}
				}
			}
		}
	}
	if len(seen) != n {
		t.Errorf("%d different numbers of %d", len(seen), n)
	}
}

// TestBelow: whole numbers are equally likely (chi-squared), also where 2^64 is no multiple of
// their number.
func TestBelow(t *testing.T) {
	const each = 2000
	for _, n := range []int{1, 2, 3, 7, 100} {
		counts := make([]int, n)
		for sample := range each * n {
			var d draws
			d.begin(Key{1, 2, sample}, 3)
			counts[d.below(n)]++
		}
		chi := 0.0
		for _, c := range counts {
			chi += float64(c-each) * float64(c-each) / each
		}
		// Mean n-1, variance 2(n-1).
		if limit := float64(n-1) + 5*math.Sqrt(2*float64(n-1)); chi > limit {
			t.Errorf("below(%d): chi-squared is %.1f, more than %.1f", n, chi, limit)
		}
	}
	// Half of the range that 64 bits cannot divide: rejected draws must not pile up at either end.
	low := 0
	n := 3 << 61
	for sample := range 10000 {
		var d draws
		d.begin(Key{1, 2, sample}, 3)
		if d.below(n) < n/2 {
			low++
		}
	}
	if low < 4750 || low > 5250 {
		t.Errorf("below(%d): %d of 10000 in the lower half", n, low)
	}
}

// TestUniform: uniform numbers are (Kolmogorov-Smirnov), along the samples and along one sample's
// draws.
func TestUniform(t *testing.T) {
	var along, within []float64
	for sample := range 20000 {
		var d draws
		d.begin(Key{7, 1, sample}, 2)
		along = append(along, d.unit())
	}
	var d draws
	d.begin(Key{7, 1, 5}, 2)
	for range 20000 {
		within = append(within, d.uniform(0, 1))
	}
	line := func(x float64) float64 { return x }
	for name, list := range map[string][]float64{"samples": along, "draws": within} {
		if p := kolmogorov(list, line); p < 1e-4 {
			t.Errorf("%s: not uniform, p = %g", name, p)
		}
	}
}
