package sizes

import (
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// moments returns the mean and the standard deviation.
func moments(sizes []float64) (mean, deviation float64) {
	for _, s := range sizes {
		mean += s / float64(len(sizes))
	}
	for _, s := range sizes {
		deviation += (s - mean) * (s - mean) / float64(len(sizes))
	}
	return mean, math.Sqrt(deviation)
}

// TestMomentsAreThoseAskedFor: mean and standard deviation of many draws are mu and sigma, within 6
// standard errors of the mean and 10 % of the deviation, for any mu and sigma.
func TestMomentsAreThoseAskedFor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := Distribution{
			Kind:  rapid.SampledFrom([]Kind{Lognormal, Gamma}).Draw(t, "kind"),
			Mu:    rapid.Float64Range(1e-3, 1e3).Draw(t, "mu"),
			Sigma: rapid.Float64Range(0.05, 1.5).Draw(t, "sigma over mu"),
		}
		d.Sigma *= d.Mu
		const n = 40000
		sizes := d.Draw(rapid.Uint64().Draw(t, "seed"), n)
		mean, deviation := moments(sizes)
		if math.Abs(mean-d.Mu) > 6*d.Sigma/math.Sqrt(n) {
			t.Fatalf("the mean is %v", mean)
		}
		// the deviation of a lognormal has a wide distribution itself, because of few large sizes
		tolerance := 0.1
		if d.Kind == Lognormal {
			tolerance = 0.1 + 0.3*d.Sigma/d.Mu
		}
		if math.Abs(deviation/d.Sigma-1) > tolerance {
			t.Fatalf("the deviation is %v", deviation)
		}
		if slices.Min(sizes) < 0 {
			t.Fatalf("a size is %v", slices.Min(sizes))
		}
	})
}

// TestDistributionFunctions compares shares of the draws with the distribution functions: the
// lognormal's, and the gamma's of shapes 1/2 (chi squared), 1 (exponential) and 2 (Erlang).
func TestDistributionFunctions(t *testing.T) {
	normal := func(x float64) float64 { return (1 + math.Erf(x/math.Sqrt2)) / 2 }
	for name, test := range map[string]struct {
		d   Distribution
		cdf func(x float64) float64
	}{
		"normal": {Distribution{Mu: 5, Sigma: 1}, func(x float64) float64 { return normal(x - 5) }},
		"lognormal": {
			Distribution{Kind: Lognormal, Mu: math.Exp(0.5), Sigma: math.Exp(0.5) * math.Sqrt(math.E-1)},
			func(x float64) float64 { return normal(math.Log(x)) },
		},
		"gamma of shape 1/2": {
			Distribution{Kind: Gamma, Mu: 1, Sigma: math.Sqrt2},
			func(x float64) float64 { return math.Erf(math.Sqrt(x / 2)) },
		},
		"gamma of shape 1": {
			Distribution{Kind: Gamma, Mu: 3, Sigma: 3},
			func(x float64) float64 { return 1 - math.Exp(-x/3) },
		},
		"gamma of shape 2": {
			Distribution{Kind: Gamma, Mu: 2, Sigma: math.Sqrt2},
			func(x float64) float64 { return 1 - math.Exp(-x)*(1+x) },
		},
		"uniform": {
			Distribution{Kind: Uniform, Min: 2, Max: 4},
			func(x float64) float64 { return (x - 2) / 2 },
		},
		"histogram": {
			Distribution{Kind: Histogram, Bins: []Bin{{0, 1, 1}, {1, 2, 0}, {2, 4, 3}}},
			func(x float64) float64 {
				return 0.25*min(x, 1) + 0.75*min(max(x-2, 0)/2, 1)
			},
		},
		"lognormal from min to max": {
			Distribution{
				Kind: Lognormal, Mu: math.Exp(0.5), Sigma: math.Exp(0.5) * math.Sqrt(math.E-1), Min: 0.5,
				Max: 4,
			},
			func(x float64) float64 {
				from, to := normal(math.Log(0.5)), normal(math.Log(4))
				return (normal(math.Log(x)) - from) / (to - from)
			},
		},
	} {
		const n = 100_000
		sizes := test.d.Draw(3, n)
		slices.Sort(sizes)
		for i := 0; i < n; i += n / 50 {
			// by Dvoretzky, Kiefer and Wolfowitz, 0.01 is exceeded with a probability of 4e-9
			if got := float64(i) / n; math.Abs(test.cdf(sizes[i])-got) > 0.01 {
				t.Errorf("%s: %.3f of the sizes are below %v, want %.3f", name, got, sizes[i],
					test.cdf(sizes[i]))
			}
		}
	}
}

// TestDrawsAreReproducible: the same seed draws the same, another one does not, and more draws
// begin with the same ones.
func TestDrawsAreReproducible(t *testing.T) {
	for _, kind := range Kinds() {
		d := Distribution{Kind: kind, Mu: 2, Sigma: 1, Min: 1, Max: 3, Bins: []Bin{{1, 2, 1}}}
		sizes := d.Draw(7, 1000)
		if !slices.Equal(d.Draw(7, 2000)[:1000], sizes) {
			t.Errorf("%s draws other sizes the second time", kind)
		}
		if kind != Constant && slices.Equal(d.Draw(8, 1000), sizes) {
			t.Errorf("%s draws the same with another seed", kind)
		}
		if slices.Min(sizes) < 1 || slices.Max(sizes) > 3 {
			t.Errorf("%s: sizes from %v to %v", kind, slices.Min(sizes), slices.Max(sizes))
		}
		if err := d.Check(); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

func TestCheck(t *testing.T) {
	for _, test := range []struct {
		d    Distribution
		want string
	}{
		{Distribution{Kind: Lognormal, Mu: 1, Sigma: 0.1, Min: 5}, "none was from min to max"},
		{Distribution{Kind: Gamma, Mu: 1, Sigma: 0.1, Max: 0.1}, "none was from min to max"},
		{Distribution{Kind: Constant, Mu: 1, Max: 0.1}, "none was from min to max"},
		{Distribution{Mu: 1, Sigma: 1, Min: 2, Max: 1}, "max is 1 MB, below min, 2 MB"},
		{Distribution{Kind: Gamma, Mu: 1, Sigma: 1, Min: 0.5, Max: 2}, ""},
	} {
		if err := test.d.Check(); test.want == "" && err != nil ||
			test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%+v: %v, want %q", test.d, err, test.want)
		}
	}
}

func TestMean(t *testing.T) {
	for _, d := range []Distribution{
		{Mu: 5, Sigma: 1},
		{Kind: Uniform, Min: 1, Max: 4},
		{Kind: Constant, Mu: 3},
		{Kind: Histogram, Bins: []Bin{{0, 1, 1}, {2, 6, 3}}},
	} {
		mean, deviation := moments(d.Draw(1, 100_000))
		if math.Abs(mean-d.Mean()) > 6*deviation/math.Sqrt(100_000)+1e-9 {
			t.Errorf("%+v: the mean of the draws is %v, Mean says %v", d, mean, d.Mean())
		}
	}
}
