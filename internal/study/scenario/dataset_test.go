package scenario_test

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hdmlp/hdmlp/internal/study/scenario"
	"github.com/hdmlp/hdmlp/internal/study/sizes"
)

// withDataset returns the small scenario with another [dataset].
func withDataset(dataset string) string {
	before, rest, _ := strings.Cut(small, "[dataset]")
	_, after, _ := strings.Cut(rest, "[job]")
	return before + "[dataset]\n" + dataset + "\n[job]" + after
}

func TestDistributions(t *testing.T) {
	for dataset, want := range map[string]sizes.Distribution{
		`distribution = "lognormal"
		 mu = "115 KB"
		 sigma = "200 KB"
		 max = "15 MB"`: {Kind: sizes.Lognormal, Mu: 0.115, Sigma: 0.2, Max: 15},
		`distribution = "gamma"
		 mu = 2
		 sigma = 1
		 min = 0.5`: {Kind: sizes.Gamma, Mu: 2, Sigma: 1, Min: 0.5},
		`distribution = "uniform"
		 min = 0
		 max = 2`: {Kind: sizes.Uniform, Max: 2},
		`distribution = "constant"
		 mu = 3`: {Kind: sizes.Constant, Mu: 3},
		`mu = 3
		 sigma = 1
		 max = 4`: {Kind: sizes.Normal, Mu: 3, Sigma: 1, Max: 4},
		`distribution = "histogram"
		 bounds = [0, "100 KB", 1, 5]
		 weights = [10, 0, 2.5]`: {Kind: sizes.Histogram, Bins: []sizes.Bin{
			{From: 0, To: 0.1, Weight: 10}, {From: 0.1, To: 1}, {From: 1, To: 5, Weight: 2.5},
		}},
	} {
		s, err := read(t, withDataset("samples = 1000\n"+dataset))
		if err != nil {
			t.Errorf("%s: %v", dataset, err)
			continue
		}
		if diff := cmp.Diff(want, s.Dataset.Sizes); diff != "" {
			t.Errorf("%s: -want +got\n%s", dataset, diff)
		}
		job, err := s.Job()
		if err != nil {
			t.Fatal(err)
		}
		if len(job.Sizes) != 1000 || !slices.Equal(job.Sizes, want.Draw(s.Seed, 1000)) {
			t.Errorf("%s: %d sizes, which are not those of the distribution", dataset, len(job.Sizes))
		}
		if math.Abs(s.Bytes()-1000*want.Mean()) > 1e-9 {
			t.Errorf("%s: %v MB", dataset, s.Bytes())
		}
	}
}

// TestDistributionsBySweep: flags choose a distribution, too.
func TestDistributionsBySweep(t *testing.T) {
	s, err := read(t, small, "distribution=gamma", "sigma=0.3", "max=2")
	if err != nil {
		t.Fatal(err)
	}
	want := sizes.Distribution{Kind: sizes.Gamma, Mu: 0.5, Sigma: 0.3, Min: 0.01, Max: 2}
	if diff := cmp.Diff(want, s.Dataset.Sizes); diff != "" {
		t.Error(diff)
	}
}

func TestHistogramFromAFile(t *testing.T) {
	dir := t.TempDir()
	open := func(text string) (*scenario.Scenario, error) {
		t.Helper()
		dataset := "samples = 10\ndistribution = \"histogram\"\nhistogram = \"sizes.csv\""
		for name, text := range map[string]string{
			"s.toml": withDataset(dataset), "sizes.csv": text,
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		f, err := scenario.Open(filepath.Join(dir, "s.toml"))
		if err != nil {
			t.Fatal(err)
		}
		return f.Scenario()
	}
	s, err := open("# from, to, weight\n0.1, 0.2, 7\n\n0.5,1,3\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []sizes.Bin{{From: 0.1, To: 0.2, Weight: 7}, {From: 0.5, To: 1, Weight: 3}}
	if diff := cmp.Diff(want, s.Dataset.Sizes.Bins); diff != "" {
		t.Error(diff)
	}
	for text, want := range map[string]string{
		"":               "has no bin; allowed: a line for each bin",
		"1,2\n":          "line 1 has 2 numbers, not 3",
		"\n1,2,x\n":      `line 2 has "x", not a number from 0`,
		"1,2,-1\n":       `line 1 has "-1"`,
		"2,1,1\n":        "bin 1, from 2 to 1 MB, does not ascend",
		"1,3,1\n2,4,1\n": "bin 2, from 2 to 4 MB, does not ascend",
		"1,3,0\n":        "no bin has a weight above 0",
	} {
		_, err := open(text)
		var faults scenario.Faults
		if !errors.As(err, &faults) || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), `dataset.histogram is "sizes.csv"`) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestFaultsOfDistributions(t *testing.T) {
	kind := func(name string) string { return "distribution = \"" + name + "\"\n" }
	bins := kind("histogram")
	for dataset, want := range map[string]string{
		kind("poisson") + "mu = 1": `dataset.distribution is "poisson": not a distribution; allowed: ` +
			"normal, lognormal, gamma, uniform, constant or histogram",
		kind("lognormall"):                         `did you mean "lognormal"?`,
		kind("lognormal") + "mu = 1":               "dataset.sigma: missing",
		kind("gamma") + "sigma = 1":                "dataset.mu: missing",
		kind("gamma") + "mu = 1\nsigma = 0":        "dataset.sigma is 0: not above 0",
		kind("uniform") + "min = 1":                "dataset.max: missing",
		kind("uniform") + "min = 2\nmax = 1":       "dataset.max is 1: max is 1 MB, below min",
		kind("constant") + "mu = 1\nsigma = 1":     `the distribution "constant" has no such`,
		kind("uniform") + "mu = 1\nmin=1\nmax = 2": `"uniform" has no such parameter; allowed: min or`,
		"mu = 1\nsigma = 1\nbounds = [1, 2]": `the distribution "normal" has no such parameter; ` +
			"allowed: mu, sigma, min or max",
		"mu = 1\nsigma = 0.1\nmax = 0.2": "dataset.max is 0.2: of 20000 draws none was from min to max",
		"mu = 1\nmax = \"1 GB/s\"":       "dataset.max is \"1 GB/s\"",

		bins: "dataset.bounds: a histogram needs its bins; allowed: bounds and weights, or histogram",
		bins + "bounds = [1, 2, 3]\nweights = [1]":     "1 weights for 3 bounds",
		bins + "bounds = [1, \"2 m\"]\nweights = [1]":  `dataset.bounds.1 is "2 m"`,
		bins + "bounds = [1, 2]\nweights = [-1]":       "dataset.weights.0 is -1",
		bins + "bounds = 3\nweights = [1]":             "dataset.bounds is 3: not a list",
		bins + "bounds = [2, 1]\nweights = [1]":        "does not ascend",
		bins + "bounds = [1, 2]\nweights = [0]":        "no bin has a weight above 0",
		bins + "histogram = \"no.csv\"":                "no such file",
		bins + "histogram = \"no.csv\"\nweights = [1]": "the bins are given as well",
		bins + "histogram = 3":                         "not the name of a file",
	} {
		_, err := read(t, withDataset("samples = 100\n"+dataset))
		var faults scenario.Faults
		if !errors.As(err, &faults) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", dataset, err, want)
		}
	}
	_, err := read(t, withDataset("index = \"a.index\"\ndistribution = \"gamma\"\nmax = 3"))
	if err == nil || !strings.Contains(err.Error(), "dataset.distribution is \"gamma\": the samples "+
		"come from a file already") || !strings.Contains(err.Error(), "dataset.max is 3") {
		t.Errorf("with an index: %v", err)
	}
}
