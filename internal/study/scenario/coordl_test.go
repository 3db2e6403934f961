package scenario_test

import (
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hdmlp/hdmlp/internal/study/scenario"
	"github.com/hdmlp/hdmlp/internal/study/simulate"
	"github.com/hdmlp/hdmlp/internal/study/sizes"
)

// coorDL returns the scenarios of CoorDL's figures.
func coorDL(t *testing.T) []*scenario.File {
	t.Helper()
	paths, err := filepath.Glob("../../../scenarios/coordl/*.toml")
	if err != nil || len(paths) < 7 {
		t.Fatalf("%d scenarios, %v", len(paths), err)
	}
	var all []*scenario.File
	for _, path := range paths {
		f, err := scenario.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, f)
	}
	return all
}

// TestCoorDLRuns: every scenario of CoorDL's figures is valid, and runs, shrunk, as one job, as
// eight and as a group of eight.
func TestCoorDLRuns(t *testing.T) {
	for _, f := range coorDL(t) {
		s, err := f.Scenario()
		if err != nil {
			t.Errorf("%s: %v", f.Name(), err)
			continue
		}
		if s.Title == "" || s.Profile != simulate.Model || s.Seed != 1 || s.Unmet() != nil ||
			s.Jobs != 1 || s.Share {
			t.Errorf("%s: got %+v", f.Name(), s)
		}
		job := shrink(t, s)
		epochs := job.Epochs
		for _, policy := range s.Policies {
			for _, jobs := range []int{1, 8, -8} {
				job.Jobs, job.Share = max(jobs, -jobs), jobs < 0
				r, err := simulate.RunModel(t.Context(), job, policy)
				if err != nil {
					t.Fatalf("%s, %s, %d jobs: %v", f.Name(), policy, jobs, err)
				}
				if !r.Supported || !(r.Runtime > 0) || len(r.Epochs) != epochs ||
					len(r.EpochsSource) != epochs {
					t.Errorf("%s, %s, %d jobs: %+v", f.Name(), policy, jobs, r)
				}
			}
		}
	}
}

// TestImagesAsOne: a dataset whose images are simulated several as one, which have as many times
// the bytes, takes as long, and reads as many bytes: rates and capacities are the same.
func TestImagesAsOne(t *testing.T) {
	const images, together = 60_000, 16
	for _, policy := range []string{"pagecache", "minio"} {
		var results [2]*simulate.Result
		for i, k := range []int{1, together} {
			f, err := scenario.Open("../../../scenarios/coordl/openimages.toml")
			if err != nil {
				t.Fatal(err)
			}
			s, err := f.Scenario()
			if err != nil {
				t.Fatal(err)
			}
			share := float64(images) / float64(together*s.Dataset.Samples)
			s.Dataset = scenario.Dataset{
				Samples: images / k,
				Sizes:   sizes.Distribution{Mu: 0.3 * float64(k), Sigma: 0.1 * math.Sqrt(float64(k))},
			}
			s.Epochs, s.GlobalBatch = 4, 512/k
			s.Env.Classes = slices.Clone(s.Env.Classes)
			s.Env.Classes[1].Capacity *= share
			s.Env.Classes[0].Capacity = 300 // so that there are many images in it either way
			job, err := s.Job()
			if err != nil {
				t.Fatal(err)
			}
			if results[i], err = simulate.RunModel(t.Context(), job, policy); err != nil {
				t.Fatal(err)
			}
		}
		one, several := results[0], results[1]
		if off := several.Runtime/one.Runtime - 1; math.Abs(off) > 0.02 {
			t.Errorf("%s: %v s, and %v s with %d images as one", policy, one.Runtime,
				several.Runtime, together)
		}
		if off := several.SourceTotal/one.SourceTotal - 1; math.Abs(off) > 0.02 {
			t.Errorf("%s: %v MB from the source, and %v with %d images as one", policy,
				one.SourceTotal, several.SourceTotal, together)
		}
		t.Logf("%s: %.4f times as long, %.4f times the bytes", policy,
			several.Runtime/one.Runtime, several.SourceTotal/one.SourceTotal)
	}
}
