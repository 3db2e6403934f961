package main

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/study/simulate"
)

const coorDL = "../../scenarios/coordl/"

// simulated runs hdmlp simulate on a scenario of CoorDL, made small.
func simulated(t *testing.T, args ...string) (string, error) {
	t.Helper()
	root := newRootCommand()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(append([]string{
		"simulate", coorDL + "imagenet-1k.toml", "--policy", "minio", "--set", "samples=2000",
		"--set", "storage_class.ram.capacity=10GB", "--set", "global_batch_size=20",
	}, args...))
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

// TestSimulateJobs: the table shows which jobs train together, and on which cores.
func TestSimulateJobs(t *testing.T) {
	for want, args := range map[string][]string{
		"24 cores, 48 hyperthreads":                 nil,
		"8 such jobs at the same time, each for":    {"--set", "jobs=8"},
		"a group of 8 jobs that share what they":    {"--set", "jobs=8", "--set", "share=true"},
		"job.share is true: there is one job":       {"--set", "share=true"},
		"--batches adds to JSON; give --json as":    {"--batches"},
		"fewer than environment.cores = 24; allowe": {"--set", "hyperthreads=8"},
	} {
		out, err := simulated(t, args...)
		if err != nil {
			out = err.Error()
		}
		if !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
			t.Errorf("%v: %q is not in\n%s", args, want, out)
		}
	}
}

// TestSimulateBatches: the JSON has the batches if they are asked for, and they add up.
func TestSimulateBatches(t *testing.T) {
	var results [2]simulate.Result
	for i, args := range [][]string{{"--json"}, {"--json", "--batches"}} {
		out, err := simulated(t, args...)
		if err != nil {
			t.Fatal(err)
		}
		var found struct{ Policies map[string]simulate.Result }
		if err := json.Unmarshal([]byte(out), &found); err != nil {
			t.Fatal(err)
		}
		results[i] = found.Policies["minio"]
	}
	if results[0].Batches != nil || results[0].BatchesSource != nil {
		t.Error("the JSON has batches that were not asked for")
	}
	sum := func(values []float64) (all float64) {
		for _, v := range values {
			all += v
		}
		return all
	}
	r := results[1]
	if len(r.Batches) != 800 || len(r.BatchesSource) != 800 || len(r.EpochsSource) != 8 {
		t.Fatalf("%d and %d batches, %d epochs", len(r.Batches), len(r.BatchesSource),
			len(r.EpochsSource))
	}
	if math.Abs(sum(r.Batches)/r.Runtime-1) > 1e-9 ||
		math.Abs(sum(r.BatchesSource)/sum(r.EpochsSource)-1) > 1e-9 {
		t.Errorf("batches take %v s of %v, and read %v MB of %v", sum(r.Batches), r.Runtime,
			sum(r.BatchesSource), sum(r.EpochsSource))
	}
}

// TestAnalyzeAlexNet: the paper's rates of AlexNet are what hdmlp analyze reads, and give table 5.
func TestAnalyzeAlexNet(t *testing.T) {
	out, err := analyze(t, "--from", coorDL+"alexnet.json", "--json")
	if err != nil {
		t.Fatal(err)
	}
	var found struct {
		Caches []struct {
			Share float64
			Fetch float64 `json:"fetch_samples_per_s"`
		} `json:"by_cache"`
	}
	if err := json.Unmarshal([]byte(out), &found); err != nil {
		t.Fatal(err)
	}
	for share, want := range map[float64]float64{0.25: 6226, 0.35: 7164, 0.5: 9225} {
		got := 0.0
		for _, c := range found.Caches {
			if math.Abs(c.Share-share) < 1e-9 {
				got = c.Fetch
			}
		}
		if math.Abs(got/want-1) > 0.005 {
			t.Errorf("%v of the dataset cached: %v samples/s, the paper has %v", share, got, want)
		}
	}
}
