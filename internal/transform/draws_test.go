package transform

import (
	"fmt"
	"math"
	"testing"
)

// TestLibraries: what is drawn is what the installed torch, Python's random module and numpy draw
// after they are seeded with the same keys.
func TestLibraries(t *testing.T) {
	py := startPython(t)
	for i := range fewer(200) {
		var d draws
		d.Begin(Key{Seed: 5, Sample: i}.Item(), i%7)
		if i == 1 {
			d.Start(77) // of one word
		}
		key := fmt.Sprint(d.Key())
		theirs := floats(t, py.ask(map[string]any{"numbers": map[string]any{"key": key}}), 1)[0]
		var ours []float64
		for range 5 {
			ours = append(ours, float64(d.Torch.Rand()), float64(d.Torch.Uniform(0.08, 1)),
				float64(d.Torch.Uniform(-0.2876821, 0.2876821)), float64(d.Torch.Below(1000)))
		}
		var order [4]int
		d.Torch.Permute(order[:])
		for _, j := range order {
			ours = append(ours, float64(j))
		}
		for range 300 { // several blocks of words
			ours = append(ours, d.Python.Random(), d.Python.Uniform(0.08, 1),
				float64(d.Python.Below(1)), float64(d.Python.Below(7)),
				float64(d.Python.Below(1<<20+1)), d.Python.Gauss(3, 0.5),
				float64(d.Python.Pick(7)), float64(d.Python.PickBy([]float64{1, 3, 3.5})),
				float64(d.Numpy.Below(7)), float64(d.Numpy.Below(15)), float64(d.Numpy.Below(1)))
		}
		var shuffled [9]int
		d.Python.Shuffle(shuffled[:])
		for _, j := range shuffled {
			ours = append(ours, float64(j))
		}
		if len(ours) != len(theirs) {
			t.Fatalf("%d numbers, and %d of the libraries", len(ours), len(theirs))
		}
		for j := range ours {
			off := math.Abs(ours[j] - theirs[j])
			// Go's logarithm may differ from the C library's in the last bit (random.gauss).
			if off > 0 && (exactJPEG || off > 1e-14*math.Abs(theirs[j])) {
				t.Fatalf("key %s: number %d is %v, and %v of the library", key, j, ours[j], theirs[j])
			}
		}
	}
}

// TestNormal: normal numbers are those of torch, within 1e-5; what is drawn after them is equal.
func TestNormal(t *testing.T) {
	py := startPython(t)
	sizes := []int{1, 2, 3, 15, 16, 17, 31, 32, 100, 4096}
	for key := range fewer(20) {
		var d draws
		d.Start(uint64(key))
		var ours []float64
		for _, n := range sizes {
			for _, x := range d.Torch.Normal(nil, n) {
				ours = append(ours, float64(x))
			}
			ours = append(ours, float64(d.Torch.Rand()))
		}
		theirs := floats(t, py.ask(map[string]any{
			"normal": map[string]any{"key": fmt.Sprint(key), "sizes": sizes},
		}), 1)[0]
		if len(ours) != len(theirs) {
			t.Fatalf("%d numbers, and %d of torch", len(ours), len(theirs))
		}
		for i := range ours {
			if math.Abs(ours[i]-theirs[i]) > 1e-5 {
				t.Fatalf("key %d: number %d is %v, and torch's %v", key, i, ours[i], theirs[i])
			}
		}
	}
}

// TestParts: the parts that are drawn are those of torchvision's and timm's own code, under the
// same keys. conformance.py draws as timm does, which is not installed for the tests of Go; those
// of Python compare with it.
func TestParts(t *testing.T) {
	py := startPython(t)
	n := fewer(3000)
	unsure := 0
	for _, timm := range []bool{false, true} {
		for _, size := range [][2]int{{500, 375}, {100, 900}, {7, 3}, {2048, 1365}} {
			var keys []string
			s := partOf([2]float64{0.08, 1}, [2]float64{3. / 4, 4. / 3})
			s.Timm = timm
			var ours [4][]float64
			sures := make([]bool, n)
			for sample := range n {
				var d draws
				d.Begin(Key{Seed: 11, Epoch: 5, Sample: sample}.Item(), 1)
				keys = append(keys, fmt.Sprint(d.Key()))
				r, sure := s.Draw(size[0], size[1], &d)
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
				"scale": s.Scale, "ratio": s.Ratio, "timm": timm,
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
