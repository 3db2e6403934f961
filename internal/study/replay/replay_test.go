package replay

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// finishedRun is the report of a job that behaved as the model predicts: 100 samples of 1 MB, 2
// ranks, 3 epochs of 10 steps, a source of 50 MB/s, computation of 200 MB/s, and a memory class
// with capacity for everything. Epoch 0 takes 2 s, later ones 0.5 s.
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
					"seconds": 0.05,
					"stall":   map[string]any{},
					"reads":   reads("memory"),
				}),
			},
		}
	}
	// of both ranks together
	both := func(e, batches int, seconds, stall float64, tier string,
		source int,
	) map[string]any {
		return map[string]any{
			"epoch": e, "batches": batches, "seconds": seconds,
			"stall":  map[string]any{"source": stall},
			"reads":  map[string]any{tier: map[string]any{"samples": 100, "bytes": 100_000_000}},
			"source": map[string]any{"samples": source / 1_000_000, "bytes": source},
		}
	}
	return map[string]any{
		"dataset": "/data", "samples": 100, "bytes": 100_000_000, "policy": "cooperative",
		"world_size": 2, "global_batch_size": 10, "seed": 7, "shuffle": "torch",
		"scheme": "strided", "tail": "pad", "source_threads": 4, "prefetch_batches": 4,
		"ranks": []any{rank(0), rank(1)},
		"epochs": []any{
			both(0, 20, 1.95, 3, "source", 100_000_000),
			both(1, 20, 0.45, 0, "memory", 0),
			both(2, 20, 0.45, 0, "memory", 0),
			both(3, 4, 0.05, 0, "memory", 0),
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
	return Read(data)
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
	near("delivered from the source", run.Delivered["source"], 100, 1e-9)
	near("delivered from memory", run.Delivered["memory"], 200, 1e-9)
	job, err := run.job(t.Context(), nil, AsItRan)
	if err != nil {
		t.Fatal(err)
	}
	near("the step", job.Steps[1], 0.05, 0.001)
	near("the source", job.Source, 50, 1e-9)
	if len(job.Nodes) != 1 || !slices.Equal(job.Nodes[0].Ranks, []int{0, 1}) {
		t.Fatalf("both ranks are on one node: %+v", job.Nodes)
	}
	result, err := run.Simulate(t.Context(), nil, AsItRan)
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range run.Epochs {
		near("predicted epoch", result.Epochs[i], e.Seconds, 0.06)
	}
	near("predicted source", result.Source, 100, 0.01)
}

// onNodes makes a report over two nodes, with a rank each, of finishedRun: a node reads a half of
// the dataset from the source at 25 MB/s, because both read it at the same time, and in later
// epochs a half of what it needs from the other node, at 100 MB/s. Its step is 0.05 s.
func onNodes() map[string]any {
	amount := func(mb int) map[string]any {
		return map[string]any{"samples": mb, "bytes": mb * 1_000_000}
	}
	node := func(number int) map[string]any {
		var epochs []any
		for e := range 3 {
			reads := map[string]any{"memory": amount(25), "peer": amount(25)}
			seconds := 0.45
			stall := 0.0
			source := 0
			if e == 0 {
				reads = map[string]any{"source": amount(25), "peer": amount(25)}
				seconds = 1.95
				stall = 1.5
				source = 50
			}
			epochs = append(epochs, map[string]any{
				"epoch": e, "batches": 10, "seconds": seconds,
				"stall": map[string]any{"source": stall}, "reads": reads, "source": amount(source),
			})
		}
		return map[string]any{
			"node": number, "responding": true, "batches": 30, "seconds": 2.85,
			"stall":            map[string]any{"source": 1.5},
			"ranks":            []any{map[string]any{"rank": number}},
			"classes":          []any{map[string]any{"name": "memory", "capacity": 50_000_000}},
			"epochs":           epochs,
			"source_threads":   4,
			"prefetch_batches": 4,
			"staging":          map[string]any{"size": 32_000_000},
			"tiers": []any{
				map[string]any{"tier": "source", "bytes": 50_000_000, "busy_seconds": 2.0},
				map[string]any{"tier": "peer", "bytes": 75_000_000, "busy_seconds": 0.75},
			},
		}
	}
	r := finishedRun()
	delete(r, "ranks")
	delete(r, "epochs")
	delete(r, "tiers")
	r["total"], r["nodes"] = map[string]any{}, []any{node(0), node(1)}
	return r
}

// TestRunOnNodes: the source is shared, links are not, and plans are those of the engine.
func TestRunOnNodes(t *testing.T) {
	run, err := readRun(t, onNodes())
	if err != nil {
		t.Fatal(err)
	}
	if got := run.Tiers(nil); !slices.Equal(got, []string{"source", "peer", "memory"}) {
		t.Errorf("tiers %v", got)
	}
	job, err := run.job(t.Context(), nil, AsItRan)
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(job.Source-50) > 1e-9 || job.Link != 100 || math.Abs(job.Steps[1]-0.05) > 1e-9 {
		t.Errorf("source %v MB/s, link %v MB/s, step %v s; want 50, 100 and 0.05", job.Source,
			job.Link, job.Steps[1])
	}
	result, err := run.Simulate(t.Context(), nil, AsItRan)
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range run.Epochs {
		if got := result.Epochs[i]; math.Abs(got-e.Seconds) > 0.1*e.Seconds {
			t.Errorf("epoch %d takes %v s, predicted %v", i, e.Seconds, got)
		}
	}
	if math.Abs(result.Source-100) > 1 || result.Delivered["peer"] < 0.8*run.Delivered["peer"] {
		t.Errorf("%v MB from the source, %v from other nodes", result.Source,
			result.Delivered["peer"])
	}
}

// TestRunWithTransforms: threads transform at their rate, whatever reads.
func TestRunWithTransforms(t *testing.T) {
	report := finishedRun()
	report["preprocessing"] = map[string]any{
		"samples": 300, "threads": 2,
		"transforms": []any{
			map[string]any{"name": "ImgDecode", "seconds": 9.0},
			map[string]any{"name": "ToTensor", "seconds": 3.0},
		},
	}
	run, err := readRun(t, report)
	if err != nil {
		t.Fatal(err)
	}
	job, err := run.job(t.Context(), nil, AsItRan)
	if err != nil {
		t.Fatal(err)
	}
	if n := &job.Nodes[0]; math.Abs(n.InForce[0].Transform-1./25) > 1e-9 ||
		!slices.Equal(n.Threads, []Change{{To: 2}}) {
		t.Fatalf("%v threads take %v s per MB; want 2 and 0.04", n.Threads,
			n.InForce[0].Transform)
	}
	result, err := run.Simulate(t.Context(), nil, AsItRan)
	if err != nil {
		t.Fatal(err)
	}
	// 300 MB at 50 MB/s, some of them ahead of their epoch
	if got := result.Runtime; got < 6 || got > 6.6 {
		t.Errorf("three epochs take %v s; two threads transform for 6 s", got)
	}
	// The number at the end may have been tried for a moment only.
	p := report["preprocessing"].(map[string]any)
	p["threads"], p["thread_changes"] = 1, []any{
		map[string]any{"seconds": 0, "to": 2}, map[string]any{"seconds": 5.9, "to": 1},
	}
	if run, err = readRun(t, report); err != nil {
		t.Fatal(err)
	}
	if result, err = run.Simulate(t.Context(), nil, AsItRan); err != nil {
		t.Fatal(err)
	}
	if got := result.Runtime; got < 6 || got > 7 {
		t.Errorf("three epochs take %v s; two threads transform for all but the last 0.1 s", got)
	}
	// What was measured in an epoch counts there, if it is not too little.
	for i, did := range []any{
		map[string]any{"samples": 150, "seconds": 12.0}, map[string]any{"samples": 2, "seconds": 9.0},
	} {
		report["epochs"].([]any)[i].(map[string]any)["transformed"] = did
	}
	if run, err = readRun(t, report); err != nil {
		t.Fatal(err)
	}
	for i, want := range []float64{0.08, 0.04, 0.04} {
		if got := run.node(0).InForce[i].Transform; math.Abs(got-want) > 1e-9 {
			t.Errorf("epoch %d: %v s per MB, want %v", i, got, want)
		}
	}
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
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Run{}, RunEpoch{})); diff != "" {
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

// TestRunSaysWhatIsLeftOut: an epoch that some node had not finished is named, with how far each
// was.
func TestRunSaysWhatIsLeftOut(t *testing.T) {
	for _, c := range []struct {
		batches int // of epoch 2 on node 1
		want    []string
	}{
		{10, nil},
		{9, []string{"epoch 2 is", "node 0 had 10 of its 10 batches", "node 1 had 9 of"}},
	} {
		report := onNodes()
		node := report["nodes"].([]any)[1].(map[string]any)
		node["epochs"].([]any)[2].(map[string]any)["batches"] = c.batches
		run, err := readRun(t, report)
		if err != nil {
			t.Fatal(err)
		}
		got := run.LeftOut()
		if c.want == nil && got != "" {
			t.Errorf("nothing is left out: %s", got)
		}
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("%q lacks %q", got, want)
			}
		}
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
		"a report over all nodes, of an earlier version": {func(r map[string]any) {
			r["total"], r["nodes"] = map[string]any{}, []any{}
			delete(r, "seed")
		}, "0.2 or earlier"},
		"a node that did not answer": {func(r map[string]any) {
			clear(r)
			for key, value := range onNodes() {
				r[key] = value
			}
			r["nodes"].([]any)[1].(map[string]any)["age_seconds"] = -1
		}, "node 1 did not answer"},
		"a rank on two nodes": {func(r map[string]any) {
			clear(r)
			for key, value := range onNodes() {
				r[key] = value
			}
			r["nodes"].([]any)[1].(map[string]any)["ranks"] = []any{map[string]any{"rank": 0}}
		}, "rank 0 of 2"},
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
	if _, err := Read([]byte("epoch,seconds\n")); err == nil ||
		!strings.Contains(err.Error(), "loader.report()") {
		t.Errorf("a table: %v; it should say what is expected", err)
	}
}
