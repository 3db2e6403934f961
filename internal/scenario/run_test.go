package scenario

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hdmlp/hdmlp/internal/simulate"
)

// finishedRun is the report of a job that behaved as the model says: 100 samples of 1 MB,
// 2 ranks, 3 epochs of 10 steps, a source of 50 MB/s, computation of 200 MB/s, and
// a memory class with capacity for everything. Epoch 0 takes 2 s, later ones 0.5 s.
func finishedRun() map[string]any {
	rank := func(number int) map[string]any {
		reads := func(tier string) map[string]any {
			return map[string]any{tier: map[string]any{"samples": 50, "bytes": 50_000_000}}
		}
		later := map[string]any{
			"batches": 10,
			"seconds": 0.45,
			"stall":   map[string]any{},
			"reads":   reads("memory"),
		}
		epoch := func(e int, of map[string]any) map[string]any {
			out := map[string]any{"epoch": e}
			for k, v := range of {
				out[k] = v
			}
			return out
		}
		return map[string]any{
			"rank": number, "staging": map[string]any{"size": 32_000_000},
			"epochs": []any{
				epoch(0, map[string]any{
					"batches": 10,
					"seconds": 2.0 - 0.05,
					"stall":   map[string]any{"source": 1.5},
					"reads":   reads("source"),
				}),
				epoch(1, later), epoch(2, later),
				epoch(3, map[string]any{
					"batches": 2,
					"seconds": 0.1,
					"stall":   map[string]any{},
					"reads":   reads("memory"),
				}),
			},
		}
	}
	source := func(n int) map[string]any {
		return map[string]any{"samples": n / 1_000_000, "bytes": n}
	}
	return map[string]any{
		"dataset": "/data", "samples": 100, "bytes": 100_000_000, "policy": "cooperative",
		"world_size": 2, "global_batch_size": 10, "seed": 7, "shuffle": "torch",
		"scheme": "strided", "tail": "pad", "source_threads": 16,
		"ranks": []any{rank(0), rank(1)},
		"epochs": []any{
			map[string]any{"epoch": 0, "source": source(100_000_000)},
			map[string]any{"epoch": 1, "source": source(0)},
			map[string]any{"epoch": 2, "source": source(0)},
			map[string]any{"epoch": 3, "source": source(0)},
		},
		"classes": []any{map[string]any{"name": "memory", "capacity": 100_000_000}},
		"tiers": []any{map[string]any{
			"tier":         "source",
			"bytes":        100_000_000,
			"busy_seconds": 2.0,
		}},
	}
}

func readRun(t *testing.T, report map[string]any) (*Run, error) {
	t.Helper()
	data, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	return ReadRun(data)
}

func TestRun(t *testing.T) {
	run, err := readRun(t, finishedRun())
	if err != nil {
		t.Fatal(err)
	}
	if len(run.Epochs) != 3 {
		t.Fatalf("%d finished epochs, not 3: %+v", len(run.Epochs), run.Epochs)
	}
	near := func(what string, got, want, tolerance float64) {
		t.Helper()
		if math.Abs(got-want) > tolerance*want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	near("epoch 0", run.Epochs[0].Seconds, 2, 0.001)
	near("epoch 1", run.Epochs[1].Seconds, 0.5, 0.001)
	near("from the source", run.SourceMB, 100, 1e-9)
	near("consumed", run.ConsumedMB, 300, 1e-9)
	job, err := run.Job(func(int) int64 { return 1_000_000 })
	if err != nil {
		t.Fatal(err)
	}
	near("c", job.Env.Compute, 200, 0.001)
	near("t(1)", job.Env.SourceThroughput.At(1), 50, 1e-9)
	near("d_1", job.Env.Classes[1].Capacity, 100, 1e-9)
	if len(job.Order) != 3 || len(job.Order[0]) != 100 {
		t.Fatalf("the order of the epochs is not the run's")
	}
	result, err := simulate.RunModel(t.Context(), job, run.Policy)
	if err != nil || !result.Supported {
		t.Fatal(err, result)
	}
	for i, e := range run.Epochs {
		near("predicted epoch", result.Epochs[i], e.Seconds, 0.05)
	}
	near("predicted source", result.SourceTotal, 100, 0.01)
}

// TestRunOfAnEarlierVersion: a report that version 0.2 saved is read like today's.
func TestRunOfAnEarlierVersion(t *testing.T) {
	want, err := readRun(t, finishedRun())
	if err != nil {
		t.Fatal(err)
	}
	report := finishedRun()
	class := report["classes"].([]any)[0].(map[string]any)
	class["room"] = class["capacity"]
	delete(class, "capacity")
	speed := report["tiers"].([]any)[0].(map[string]any)
	speed["place"] = speed["tier"]
	delete(speed, "tier")
	report["places"] = report["tiers"]
	delete(report, "tiers")
	got, err := readRun(t, report)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Run{})); diff != "" {
		t.Error(diff)
	}
}

// TestRunOfPython: what Python made of batches before the step is part of the step's time.
func TestRunOfPython(t *testing.T) {
	report := finishedRun()
	for _, rank := range report["ranks"].([]any) {
		for _, epoch := range rank.(map[string]any)["epochs"].([]any) {
			epoch.(map[string]any)["stall"].(map[string]any)["python"] = 0.2
		}
	}
	run, err := readRun(t, report)
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(run.Epochs[1].Seconds-0.5) > 1e-9 {
		t.Errorf("epoch 1 takes %v s, want 0.5", run.Epochs[1].Seconds)
	}
}

func TestRunRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(map[string]any)
		says   string
	}{
		"another file":        {func(r map[string]any) { clear(r) }, "not a job's report"},
		"a job on many nodes": {func(r map[string]any) { r["world_size"] = 4 }, "2 of 4 ranks"},
		"no finished epoch": {func(r map[string]any) {
			r["epochs"] = r["epochs"].([]any)[3:]
		}, "no epochs"},
		"a report over all nodes": {func(r map[string]any) {
			r["total"], r["nodes"] = map[string]any{}, []any{}
		}, "without cluster=True"},
		"the output of stats": {func(r map[string]any) {
			clear(r)
			r["jobs"] = []any{}
		}, "one of the `jobs`"},
		"another shuffle": {func(r map[string]any) { r["shuffle"] = "riffle" }, "riffle"},
	} {
		report := finishedRun()
		c.change(report)
		if _, err := readRun(t, report); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v; it should say %q", name, err, c.says)
		}
	}
	if _, err := ReadRun([]byte("epoch,seconds\n")); err == nil ||
		!strings.Contains(err.Error(), "loader.report()") {
		t.Errorf("a table: %v; it should say what is expected", err)
	}
}
