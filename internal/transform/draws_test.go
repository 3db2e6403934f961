package transform

import (
	"fmt"
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
	var d draws
	d.begin(Key{Seed: 42, Epoch: 3, Sample: 1000, Occurrence: 2}.item(), 1)
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
					item := Key{seed, epoch, sample, occurrence}.item()
					for position := range 8 {
						var d draws
						d.begin(item, position)
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

// TestLibraries: what is drawn is what the installed torch and Python's random module draw after
// they are seeded with the same keys.
func TestLibraries(t *testing.T) {
	py := startPython(t)
	for i := range 200 {
		var d draws
		d.begin(Key{Seed: 5, Sample: i}.item(), i%7)
		if i == 1 {
			d.key = 77 // of one word
			d.begin(0, 0)
			d.torch.key, d.python.key = 77, 77
		}
		key := fmt.Sprint(d.python.key)
		theirs := floats(t, py.ask(map[string]any{"numbers": map[string]any{"key": key}}), 1)[0]
		var ours []float64
		for range 5 {
			ours = append(ours, float64(d.torch.rand()), float64(d.torch.uniform(0.08, 1)),
				float64(d.torch.uniform(-0.2876821, 0.2876821)), float64(d.torch.below(1000)))
		}
		var order [4]int
		d.torch.permute(order[:])
		for _, j := range order {
			ours = append(ours, float64(j))
		}
		for range 300 { // several blocks of words
			ours = append(ours, d.python.random(), d.python.uniform(0.08, 1),
				float64(d.python.below(1)), float64(d.python.below(7)),
				float64(d.python.below(1<<20+1)))
		}
		if len(ours) != len(theirs) {
			t.Fatalf("%d numbers, and %d of the libraries", len(ours), len(theirs))
		}
		for j := range ours {
			if ours[j] != theirs[j] {
				t.Fatalf("key %s: number %d is %v, and %v of the library", key, j, ours[j], theirs[j])
			}
		}
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

// TestParts: the parts that are drawn are those of torchvision's and timm's own code, under the
// same keys. conformance.py draws as timm does, which is not installed for the tests of Go; those
// of Python compare with it.
func TestParts(t *testing.T) {
	py := startPython(t)
	const n = 3000
	unsure := 0
	for _, timm := range []bool{false, true} {
		for _, size := range [][2]int{{500, 375}, {100, 900}, {7, 3}, {2048, 1365}} {
			var keys []string
			s := partOf([2]float64{0.08, 1}, [2]float64{3. / 4, 4. / 3})
			s.timm = timm
			var ours [4][]float64
			sures := make([]bool, n)
			for sample := range n {
				var d draws
				d.begin(Key{Seed: 11, Epoch: 5, Sample: sample}.item(), 1)
				keys = append(keys, fmt.Sprint(d.key))
				r, sure := s.part(size[0], size[1], &d)
				for i, v := range []int{r.Min.Y, r.Min.X, r.Dy(), r.Dx()} {
					ours[i] = append(ours[i], float64(v))
				}
				sures[sample] = sure
				if !sure {
					unsure++
				}
			}
			theirs := floats(t, py.ask(map[string]any{"parts": map[string]any{
				"keys": keys, "width": size[0], "height": size[1],
				"scale": s.scale, "ratio": s.ratio, "timm": timm,
			}}), 4)
			for sample := range n {
				for i := range ours {
					if ours[i][sample] != theirs[i][sample] && sures[sample] {
						t.Fatalf("timm %v, %v, sample %d: column %d is %v, and %v of the library",
							timm, size, sample, i, ours[i][sample], theirs[i][sample])
					}
				}
			}
		}
	}
	if unsure > 10 {
		t.Errorf("%d of %d parts depend on how an exponential is rounded", unsure, 8*n)
	}
}

// TestAgreement: the draws with which Python compares those of the installed libraries are these.
func TestAgreement(t *testing.T) {
	var d draws
	d.torch.key, d.python.key = uint32(0x5EEDFACE12345678&(1<<32-1)), 0x5EEDFACE12345678
	var torch, python []float64
	for range 3 {
		torch = append(torch, float64(d.torch.rand()), float64(d.torch.uniform(0.08, 1)),
			float64(d.torch.uniform(-0.3, 0.3)), float64(d.torch.below(1000)))
	}
	var order [4]int
	d.torch.permute(order[:])
	for _, i := range order {
		torch = append(torch, float64(i))
	}
	for range 3 {
		python = append(python, d.python.random(), d.python.uniform(0.08, 1),
			float64(d.python.below(1001)), float64(d.python.below(7)))
	}
	text, err := os.ReadFile("../../python/hdmlp/_transforms/agreement.py")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "KEY = 0x5EEDFACE12345678\n") {
		t.Error("the key is another one")
	}
	for name, ours := range map[string][]float64{"torch": torch, "Python": python} {
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
