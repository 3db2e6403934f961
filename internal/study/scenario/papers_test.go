package scenario_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/study/scenario"
	"github.com/hdmlp/hdmlp/internal/study/simulate"
)

// papers are the scenarios that come with HDMLP.
func papers(t *testing.T) []*scenario.File {
	t.Helper()
	paths, err := filepath.Glob("../../../scenarios/*.toml")
	if err != nil || len(paths) < 13 {
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

// TestPapers: every scenario is valid, has a title, and is of the case that its paper says.
func TestPapers(t *testing.T) {
	// By where the dataset fits: into a node's memory, a node's storage, all nodes' storage, or
	// nowhere.
	cases := map[string]int{
		"thesis-1": 1, "thesis-2": 2, "thesis-3": 3, "thesis-4": 4, "thesis-environment": 4,
		"imagenet-1k": 2, "openimages": 3, "places365": 3,
		"imagenet-22k": 4, "cosmoflow": 4, "cosmoflow-32": 4, "coordl-ssd-v100": 4,
		"coordl-hdd-1080ti": 3, "coefficients": 1,
	}
	for _, f := range papers(t) {
		s, err := f.Scenario()
		if err != nil {
			t.Errorf("%s: %v", f.Name(), err)
			continue
		}
		if s.Title == "" || s.Profile != simulate.Model || s.Seed != 1 || len(s.Policies) == 0 {
			t.Errorf("%s: got %+v", f.Name(), s)
		}
		bytes := s.Bytes()
		memory := 0.0
		node := s.Env.LocalCapacity()
		if len(s.Env.Classes) > 1 {
			memory = s.Env.Classes[1].Capacity
		}
		got := 4
		switch {
		case bytes < memory:
			got = 1
		case bytes < node:
			got = 2
		case bytes < node*float64(s.Nodes):
			got = 3
		}
		if got != cases[f.Name()] {
			t.Errorf("%s: %.0f MB with %.0f MB of memory and %.0f MB in all on each of %d nodes "+
				"are case %d, want %d",
				f.Name(), bytes, memory, node, s.Nodes, got, cases[f.Name()])
		}
	}
}

// shrink makes a scenario small enough to be run in a test: few samples, and the caches small in
// proportion, so that the dataset fits where it did.
func shrink(t *testing.T, s *scenario.Scenario) *simulate.Job {
	t.Helper()
	const samples = 600
	s.GlobalBatch = max(s.Nodes*4, 20)
	share := float64(samples) / float64(s.Dataset.Samples)
	s.Dataset.Samples, s.Epochs = samples, 3
	job, err := s.Job()
	if err != nil {
		t.Fatal(err)
	}
	largest := 0.0
	for _, v := range job.Sizes {
		largest = max(largest, v)
	}
	for j := range job.Env.Classes {
		job.Env.Classes[j].Capacity *= share
	}
	job.Env.Classes[0].Capacity = max(job.Env.Classes[0].Capacity, 8*largest)
	return job
}

// TestPapersRun: every scenario, shrunk, runs with every policy that can run it, in both profiles.
func TestPapersRun(t *testing.T) {
	for _, f := range papers(t) {
		if strings.HasSuffix(f.Name(), "-environment") {
			continue // its caches are empty until they are set
		}
		for profile, run := range map[simulate.Profile]func(context.Context, *simulate.Job,
			string) (*simulate.Result, error){
			simulate.Model: simulate.RunModel, simulate.Thesis: simulate.RunThesis,
		} {
			s, err := f.Scenario()
			if err != nil {
				t.Fatal(err)
			}
			job := shrink(t, s)
			ran := 0
			for _, policy := range scenario.Policies() {
				r, err := run(t.Context(), job, policy)
				if err != nil {
					t.Errorf("%s, %s, %s: %v", f.Name(), profile, policy, err)
					continue
				}
				if !r.Supported {
					if r.Reason == "" {
						t.Errorf("%s, %s, %s cannot run, and no reason is given", f.Name(), profile,
							policy)
					}
					continue
				}
				ran++
				if !(r.Runtime > 0) || len(r.Epochs) != s.Epochs {
					t.Errorf("%s, %s, %s: %v s, %d epochs", f.Name(), profile, policy, r.Runtime,
						len(r.Epochs))
				}
			}
			if ran < 6 {
				t.Errorf("%s, %s: %d policies run", f.Name(), profile, ran)
			}
		}
	}
}

// FuzzScenario: whatever a file says, it is refused with faults that name something, or it is a
// scenario that can be described.
func FuzzScenario(f *testing.F) {
	f.Add(small, "job.epochs=3")
	f.Add(strings.Replace(small, "nodes = 2", "nodes = {}", 1), "storage_class.ram.capacity=1 TB")
	f.Add("environment = []\ndataset = 3", "a.b.c.d=[")
	f.Fuzz(func(t *testing.T, text, set string) {
		file, err := scenario.New("fuzz.toml", []byte(text))
		if err != nil {
			return
		}
		var overrides []scenario.Override
		if o, err := scenario.ParseOverride(set); err == nil {
			overrides = append(overrides, o)
		}
		s, err := file.Scenario(overrides...)
		if err != nil {
			if faults, ok := err.(scenario.Faults); !ok || len(faults) == 0 ||
				faults[0].Wrong == "" {
				t.Fatalf("an error that says nothing: %v", err)
			}
			return
		}
		if err := s.Env.Validate(); err != nil {
			t.Fatalf("a scenario with an invalid environment: %v", err)
		}
		if s.Nodes < 1 || s.Epochs < 1 || s.GlobalBatch < 1 || s.Dataset.Samples < 1 ||
			len(s.Policies) == 0 || s.Steps() < 1 || s.RunBytes(true) <= 0 {
			t.Fatalf("a scenario that cannot be: %+v", s)
		}
	})
}
