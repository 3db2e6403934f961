package random

import (
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestKeys: the keys are those that docs/SEMANTICS.md describes, for ever: a change of them changes
// every run.
func TestKeys(t *testing.T) {
	var d Draws
	d.Begin(Key{Seed: 42, Epoch: 3, Sample: 1000, Occurrence: 2}.Item(), 1)
	if d.key != 0xd1b71fe53653819c {
		t.Errorf("the key is %#x", d.key)
	}
	// SplitMix64 from state 0, as published.
	if got := mix64(0); got != 0xe220a8397b1dcdaf {
		t.Errorf("SplitMix64(0) gives %#x", got)
	}
}

// TestKeysDiffer: each part of the key, and the position, changes everything.
func TestKeysDiffer(t *testing.T) {
	seen := map[uint64]bool{}
	n := 0
	for seed := range uint64(8) {
		for epoch := range 8 {
			for sample := range 32 {
				for occurrence := range 4 {
					item := Key{seed, epoch, sample, occurrence}.Item()
					for position := range 8 {
						var d Draws
						d.Begin(item, position)
						seen[d.key] = true
						n++
					}
				}
			}
		}
	}
	if len(seen) != n {
		t.Errorf("%d different keys of %d", len(seen), n)
	}
}

// TestFMA: products and sums are rounded once.
func TestFMA(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	number := func() float32 {
		return math.Float32frombits(r.Uint32()&0x8fffffff | 0x30000000) // of similar sizes
	}
	for range 200_000 {
		x, y := number(), number()
		z := number()
		exact := new(big.Float).SetPrec(200).Mul(big.NewFloat(float64(x)), big.NewFloat(float64(y)))
		exact.Add(exact, big.NewFloat(float64(z)))
		if want, _ := exact.Float32(); fma32(x, y, z) != want {
			t.Fatalf("%v*%v + %v is %v, want %v", x, y, z, fma32(x, y, z), want)
		}
	}
	// Where rounding to float64 first would give the other neighbour.
	if got := fma32(1+0x1p-23, 1+0x1p-12, 0x1p-60); got != 1+0x1p-12+0x1p-23 {
		t.Errorf("%x", got)
	}
}

// TestAgreement: the draws with which Python compares those of the installed libraries are these.
func TestAgreement(t *testing.T) {
	var d Draws
	d.Start(0x5EEDFACE12345678)
	var torch, python, numpy []float64
	for range 3 {
		torch = append(torch, float64(d.Torch.Rand()), float64(d.Torch.Uniform(0.08, 1)),
			float64(d.Torch.Uniform(-0.3, 0.3)), float64(d.Torch.Below(1000)))
	}
	var order [4]int
	d.Torch.Permute(order[:])
	for _, i := range order {
		torch = append(torch, float64(i))
	}
	for range 3 {
		python = append(python, d.Python.Random(), d.Python.Uniform(0.08, 1),
			float64(d.Python.Below(1001)), float64(d.Python.Below(7)))
	}
	for range 2 {
		python = append(python, d.Python.Gauss(9, 0.5), float64(d.Python.Pick(7)))
	}
	order = [4]int{}
	d.Python.Shuffle(order[:])
	for _, i := range order {
		python = append(python, float64(i))
	}
	for range 3 {
		numpy = append(numpy, float64(d.Numpy.Below(15)), float64(d.Numpy.Below(1000)))
	}
	text, err := os.ReadFile("../../../python/hdmlp/_transforms/agreement.py")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "KEY = 0x5EEDFACE12345678\n") {
		t.Error("the key is another one")
	}
	for name, ours := range map[string][]float64{
		"torch": torch, "Python": python, "numpy": numpy,
	} {
		_, list, _ := strings.Cut(string(text), `"`+name+`": [`)
		list, _, _ = strings.Cut(list, "]")
		var theirs []float64
		for number := range strings.SplitSeq(list, ",") {
			if number = strings.TrimSpace(number); number != "" {
				v, err := strconv.ParseFloat(number, 64)
				if err != nil {
					t.Fatal(err)
				}
				theirs = append(theirs, v)
			}
		}
		if !slices.Equal(ours, theirs) {
			t.Errorf("%s: %v, and agreement.py has %v", name, ours, theirs)
		}
	}
}
