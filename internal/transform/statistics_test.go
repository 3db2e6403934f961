package transform

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"github.com/hdmlp/hdmlp/internal/transform/policy"
)

// kolmogorov is the p-value of list being drawn from the distribution function
// (Kolmogorov-Smirnov).
func kolmogorov(list []float64, distribution func(float64) float64) float64 {
	slices.Sort(list)
	n, d := float64(len(list)), 0.0
	for i, x := range list {
		f := distribution(x)
		d = max(d, f-float64(i)/n, float64(i+1)/n-f)
	}
	return tail(d, n)
}

// smirnov is the p-value of two lists being drawn from one distribution. Ties are taken together.
func smirnov(a, b []float64) float64 {
	slices.Sort(a)
	slices.Sort(b)
	d := 0.0
	for i, j := 0, 0; i < len(a) && j < len(b); {
		x := min(a[i], b[j])
		for i < len(a) && a[i] == x {
			i++
		}
		for j < len(b) && b[j] == x {
			j++
		}
		d = max(d, math.Abs(float64(i)/float64(len(a))-float64(j)/float64(len(b))))
	}
	return tail(d, float64(len(a))*float64(len(b))/float64(len(a)+len(b)))
}

// tail is Kolmogorov's distribution above d, of n draws.
func tail(d, n float64) float64 {
	x := (math.Sqrt(n) + 0.12 + 0.11/math.Sqrt(n)) * d
	if x < 0.2 {
		return 1
	}
	p := 0.0
	for k := 1.0; k < 100; k++ {
		p += 2 * math.Pow(-1, k-1) * math.Exp(-2*k*k*x*x)
	}
	return p
}

// TestCropsAreTorchvisions: areas, aspect ratios and places of RandomResizedCrop, places of
// RandomCrop, and factors and orders of ColorJitter are distributed as torchvision's, which draws
// as many.
func TestCropsAreTorchvisions(t *testing.T) {
	n := fewer(20000)
	py := startPython(t)
	for _, c := range []struct {
		width, height int
		scale, ratio  [2]float64
	}{
		{500, 375, [2]float64{0.08, 1}, [2]float64{3.0 / 4, 4.0 / 3}},
		// many fall back to the middle
		{100, 900, [2]float64{0.08, 1}, [2]float64{3.0 / 4, 4.0 / 3}},
		{64, 64, [2]float64{0.5, 0.6}, [2]float64{0.5, 2}},
	} {
		theirs := floats(t, py.ask(map[string]any{"draw": map[string]any{
			"n": n, "width": c.width, "height": c.height, "scale": c.scale, "ratio": c.ratio,
		}}), 4)
		ours := make([][]float64, 4)
		s := partOf(c.scale, c.ratio)
		for sample := range n {
			var d draws
			d.Begin(Key{Seed: 11, Epoch: 5, Sample: sample}.Item(), 1)
			r, _ := s.Draw(c.width, c.height, &d)
			for i, v := range []int{r.Min.Y, r.Min.X, r.Dy(), r.Dx()} {
				ours[i] = append(ours[i], float64(v))
			}
		}
		area := func(l [][]float64) (out []float64) {
			for i := range l[0] {
				out = append(out, l[2][i]*l[3][i])
			}
			return out
		}
		ratio := func(l [][]float64) (out []float64) {
			for i := range l[0] {
				out = append(out, l[3][i]/l[2][i])
			}
			return out
		}
		for name, p := range map[string]float64{
			"area": smirnov(area(ours), area(theirs)), "ratio": smirnov(ratio(ours), ratio(theirs)),
			"top": smirnov(ours[0], theirs[0]), "left": smirnov(ours[1], theirs[1]),
		} {
			if p < 1e-3 {
				t.Errorf("%dx%d, scale %v, ratio %v: %s is distributed otherwise than "+
					"torchvision's, p = %g", c.width, c.height, c.scale, c.ratio, name, p)
			}
		}
	}
}

// partOf returns what draws parts as torchvision does.
func partOf(scale, ratio [2]float64) *policy.Part {
	a := randomResizedCrop.arguments("", nil)
	return &policy.Part{Scale: scale, Ratio: ratio, Logs: a.Logs("log_ratio", ratio)}
}

// floats are an answer's numbers, in so many columns.
func floats(t *testing.T, a answer, columns int) [][]float64 {
	if a.Error != "" {
		t.Fatal("torchvision: ", a.Error)
	}
	out := make([][]float64, columns)
	for i := range len(a.data) / 8 {
		out[i%columns] = append(out[i%columns],
			math.Float64frombits(binary.LittleEndian.Uint64(a.data[8*i:])))
	}
	return out
}

// TestAreaAndRatioAreDistributedAsSpecified: where every first try fits, areas are uniform, and so
// are logarithms of ratios.
func TestAreaAndRatioAreDistributedAsSpecified(t *testing.T) {
	const edge = 4000
	s := partOf([2]float64{0.1, 0.4}, [2]float64{0.5, 2})
	var areas, ratios []float64
	for sample := range 20000 {
		var d draws
		d.Begin(Key{Seed: 3, Epoch: 0, Sample: sample}.Item(), 1)
		r, _ := s.Draw(edge, edge, &d)
		areas = append(areas, float64(r.Dx())*float64(r.Dy())/(edge*edge))
		ratios = append(ratios, math.Log2(float64(r.Dx())/float64(r.Dy())))
	}
	if p := kolmogorov(areas, func(x float64) float64 {
		return min(max((x-0.1)/0.3, 0), 1)
	}); p < 1e-4 {
		t.Errorf("areas are not uniform, p = %g", p)
	}
	if p := kolmogorov(ratios, func(x float64) float64 {
		return min(max((x+1)/2, 0), 1)
	}); p < 1e-4 {
		t.Errorf("logarithms of ratios are not uniform, p = %g", p)
	}
}

// TestInterpolations: each of a list is as likely, crops are those that one interpolation alone
// has, and one draws nothing more.
func TestInterpolations(t *testing.T) {
	py := startPython(t)
	sample := py.ask(map[string]any{"image": png(40, 30, "RGB")}).data
	drawn := func(w *Worker, id int) []Param {
		w.Record(true)
		if err := w.Apply(make([]byte, 9*9*3), sample, Key{Seed: 5, Epoch: 1, Sample: id}); err != nil {
			t.Fatal(err)
		}
		return w.Drawn()[0].Params
	}
	one, two := compiled(t, `RandomResizedCrop(9)`).Worker(),
		compiled(t, `RandomResizedCrop(9, interpolation=("bilinear", "bicubic"))`).Worker()
	defer one.Close()
	defer two.Close()
	const n = 4000
	second := 0
	for id := range n {
		a, b := drawn(one, id), drawn(two, id)
		if len(a) != 4 || len(b) != 5 || !slices.Equal(a, b[:4]) || b[4].Name != "interpolation" {
			t.Fatalf("%v and %v", a, b)
		}
		second += int(b[4].Value)
	}
	if math.Abs(float64(second)-n/2) > 4*math.Sqrt(n)/2 {
		t.Errorf("%d of %d are the second", second, n)
	}
}

// TestOtherDraws: flips come with their probability, ColorJitter's orders are equally likely and
// its factors uniform, and RandomCrop's places too.
func TestOtherDraws(t *testing.T) {
	py := startPython(t)
	sample := py.ask(map[string]any{"image": png(40, 30, "RGB")}).data
	w := compiled(t, `RandomCrop((30, 11)), RandomHorizontalFlip(0.3), RandomVerticalFlip(),
		ColorJitter((0.5, 1.5), (0.5, 1.5), (0.5, 1.5), 0.2)`).Worker()
	defer w.Close()
	w.Record(true)
	dst := make([]byte, 30*11*3)
	const n = 6000
	lefts, orders := map[float64]int{}, map[string]int{}
	var flips [2]int
	factors := map[string][]float64{}
	for id := range n {
		if err := w.Apply(dst, sample, Key{Seed: 5, Epoch: 1, Sample: id}); err != nil {
			t.Fatal(err)
		}
		order := ""
		for _, d := range w.Drawn() {
			for _, p := range d.Params {
				switch {
				case d.Step == 1 && p.Name == "left":
					lefts[p.Value]++
				case d.Step == 2 || d.Step == 3:
					flips[d.Step-2] += int(p.Value)
				case d.Step == 4:
					order += p.Name[:1]
					factors[p.Name] = append(factors[p.Name], p.Value)
				}
			}
		}
		orders[order]++
	}
	even := func(name string, counts []int, kinds int) {
		chi, each := 0.0, float64(n)/float64(kinds)
		for _, c := range counts {
			chi += (float64(c) - each) * (float64(c) - each) / each
		}
		if len(counts) != kinds || chi > float64(kinds)+5*math.Sqrt(2*float64(kinds)) {
			t.Errorf("%s: %d kinds, want %d; chi-squared %.1f: %v", name, len(counts), kinds, chi,
				counts)
		}
	}
	even("left", values(lefts), 30)
	even("order", values(orders), 24)
	for i, p := range []float64{0.3, 0.5} {
		if far := math.Abs(float64(flips[i])/n - p); far > 5*math.Sqrt(p*(1-p)/n) {
			t.Errorf("flip %d: %d of %d, want %v of them", i, flips[i], n, p)
		}
	}
	for name, list := range factors {
		from, to := 0.5, 1.5
		if name == "hue" {
			from, to = -0.2, 0.2
		}
		if p := kolmogorov(list, func(x float64) float64 {
			return (x - from) / (to - from)
		}); p < 1e-4 {
			t.Errorf("%s is not uniform, p = %g", name, p)
		}
	}
}

func values[K comparable](m map[K]int) (list []int) {
	for _, v := range m {
		list = append(list, v)
	}
	return list
}
