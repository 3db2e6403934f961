package replay

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRunThatWasWarm: what classes held at the start is not read again, up to what the plan has.
func TestRunThatWasWarm(t *testing.T) {
	for held, want := range map[int]float64{0: 100, 40: 60, 100: 0} {
		report := finishedRun()
		report["classes"].([]any)[0].(map[string]any)["held_at_start"] = map[string]any{
			"samples": held, "bytes": held * 1_000_000,
		}
		run, err := readRun(t, report)
		if err != nil {
			t.Fatal(err)
		}
		result, err := run.Simulate(t.Context(), nil, AsItRan)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(result.Source-want) > 1e-6 {
			t.Errorf("%d of 100 MB held: %v MB from the source", held, result.Source)
		}
	}
}

// TestRunVariedStartsAsWarm: in a what-if question classes hold at the start what they held when
// the run began, as much of it as there is capacity for.
func TestRunVariedStartsAsWarm(t *testing.T) {
	report := finishedRun()
	class := report["classes"].([]any)[0].(map[string]any)
	class["capacity"] = 50_000_000
	class["held_at_start"] = map[string]any{"samples": 50, "bytes": 50_000_000}
	run, err := readRun(t, report)
	if err != nil {
		t.Fatal(err)
	}
	ran, err := run.Simulate(t.Context(), nil, AsItRan)
	if err != nil {
		t.Fatal(err)
	}
	same, err := run.Simulate(t.Context(), nil, Variation{Memory: 50_000_000})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(ran, same); diff != "" {
		t.Errorf("with as much memory as the run had (-as it ran, +what if):\n%s", diff)
	}
	for v, want := range map[Variation]float64{
		{Memory: 100_000_000}:           50,
		{Memory: 20_000_000}:            3 * 80,
		{Memory: -1, Nodes: 2}:          0, // each holds a half, as the node of the run did
		{Memory: 20_000_000, Nodes: 2}:  3 * 60,
		{Memory: 100_000_000, Nodes: 2}: 0,
	} {
		got, err := run.Simulate(t.Context(), nil, v)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(got.Source-want) > 0.1*want+5 {
			t.Errorf("%+v: %v MB from the source, want %v", v, got.Source, want)
		}
	}
}

// TestRunThatWrote: while samples wait to be written to a class, how much of it was used in which
// time gives the rate of these writes; otherwise it does not matter.
func TestRunThatWrote(t *testing.T) {
	report := finishedRun()
	report["classes"] = []any{map[string]any{
		"name": "file", "capacity": 100_000_000, "used": 30_000_000,
		"held_at_start": map[string]any{"samples": 6, "bytes": 6_000_000},
	}}
	for _, want := range []float64{0, 10} {
		run, err := readRun(t, report)
		if err != nil {
			t.Fatal(err)
		}
		got := run.node(0).Classes[0]
		if math.Abs(got.Write-want) > 1e-9 || !got.KeepAll {
			t.Errorf("written at %v MB/s, want %v; keeps all: %v", got.Write, want, got.KeepAll)
		}
		// 24 MB in the 2.4 s until the end of epoch 1
		epoch := report["epochs"].([]any)[1].(map[string]any)
		epoch["reads"].(map[string]any)["writeback"] = map[string]any{"samples": 5, "bytes": 5_000_000}
	}
	// It is known how long writes took: they may have waited for the source most of the time.
	report["classes"].([]any)[0].(map[string]any)["written"] = map[string]any{
		"samples": 24, "bytes": 24_000_000, "busy_seconds": 0.5,
	}
	run, err := readRun(t, report)
	if err != nil {
		t.Fatal(err)
	}
	if got := run.node(0).Classes[0].Write; math.Abs(got-48) > 1e-9 {
		t.Errorf("written at %v MB/s, want 48", got)
	}
}

// TestClassInEachEpoch: a class is read as fast as in each epoch, but for those in which too little
// was read to say.
func TestClassInEachEpoch(t *testing.T) {
	report := finishedRun()
	report["classes"] = []any{map[string]any{
		"name": "file", "capacity": 100_000_000, "used": 100_000_000,
	}}
	for e, bytes := range []int{50_000_000, 500_000, 50_000_000} {
		report["epochs"].([]any)[e].(map[string]any)["tiers"] = []any{map[string]any{
			"tier": "file", "bytes": bytes, "busy_seconds": 1.25 - 0.5*float64(e),
		}}
	}
	report["tiers"] = append(report["tiers"].([]any), map[string]any{
		"tier": "file", "bytes": 100_500_000, "busy_seconds": 2.25,
	})
	run, err := readRun(t, report)
	if err != nil {
		t.Fatal(err)
	}
	job, err := run.job(t.Context(), nil, AsItRan)
	if err != nil {
		t.Fatal(err)
	}
	for e, want := range []float64{40, 0, 200} {
		if got := job.Nodes[0].InForce[e].Read[0]; math.Abs(got-want) > 1e-9 {
			t.Errorf("epoch %d: %v MB/s, want %v", e, got, want)
		}
	}
	if got := job.Nodes[0].Classes[0].Rate; math.Abs(got-200) > 1e-9 {
		t.Errorf("otherwise: %v MB/s, want 200", got)
	}
}

// TestStepsOfEachEpoch: computation takes what is left of an epoch besides what ranks waited for
// data, but not less than in the epoch with the least.
func TestStepsOfEachEpoch(t *testing.T) {
	report := finishedRun()
	delete(report, "ranks")
	report["ranks"] = []any{map[string]any{"rank": 0}, map[string]any{"rank": 1}}
	for e, of := range []struct{ seconds, stall, step float64 }{
		{1.95, 3, 0.08},   // both ranks waited all the time
		{0.45, 0, 0.05},   // 9 steps of 50 ms
		{0.9, 0.18, 0.09}, // 80 ms at least
	} {
		epoch := report["epochs"].([]any)[e].(map[string]any)
		epoch["seconds"], epoch["stall"] = of.seconds, map[string]any{"source": of.stall}
		epoch["step_seconds"] = of.step
	}
	run, err := readRun(t, report)
	if err != nil {
		t.Fatal(err)
	}
	for e, want := range []float64{0.05, 0.05, 0.08} {
		if got := run.Epochs[e].step; math.Abs(got-want) > 1e-9 {
			t.Errorf("a step of epoch %d takes %v s, want %v", e, got, want)
		}
	}
	run.Free = true // each rank's time is its own
	if got := run.stepIn(2); math.Abs(got-0.09) > 1e-9 {
		t.Errorf("of ranks that do not wait for each other: %v s, want 0.09", got)
	}
}

// TestRunVaried: what-if questions change the memory of each node and their number.
func TestRunVaried(t *testing.T) {
	run, err := readRun(t, finishedRun())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		v      Variation
		source float64 // MB
	}{
		{AsItRan, 100},
		{Variation{Memory: 50_000_000}, 200},
		{Variation{Memory: 0}, 300},
		{Variation{Memory: 25_000_000, Nodes: 2}, 200},
		{Variation{Memory: -1, Nodes: 2}, 100},
	} {
		result, err := run.Simulate(t.Context(), nil, c.v)
		if err != nil {
			t.Fatal(err)
		}
		// A sample that is being read for one epoch when the next one needs it is read once; one that
		// another node owns is read directly if that is sooner, or if the answer takes longer than was
		// guessed.
		if result.Source > 1.1*c.source || result.Source < 0.85*c.source {
			t.Errorf("%+v: %v MB from the source, want %v", c.v, result.Source, c.source)
		}
	}
}

// TestMemoryForRunWithoutAny: a question what if gives memory to a run that had none, beside the
// classes that it had, whether or not it planned with numbers.
func TestMemoryForRunWithoutAny(t *testing.T) {
	agreed := map[string]any{
		"streams": 4, "source": shared(100, "probed"), "network": shared(100, "probed"),
		"classes": []any{
			map[string]any{"name": "file", "path": "/disk", "read": shared(50, "probed")},
		},
	}
	for name, planned := range map[string]map[string]any{"guesses": nil, "numbers": agreed} {
		report := finishedRun()
		class := report["classes"].([]any)[0].(map[string]any)
		class["name"] = "file"
		class["path"] = "/disk"
		class["capacity"] = 30_000_000
		if planned != nil {
			report["environment"], report["planned_with"] = planned, planned
		}
		run, err := readRun(t, report)
		if err != nil {
			t.Fatal(err)
		}
		source := func(memory int64) float64 {
			got, err := run.Simulate(t.Context(), nil, Variation{Memory: memory})
			if err != nil {
				t.Fatal(err)
			}
			if got.Delivered["memory"] == 0 && memory > 0 {
				t.Errorf("planned with %s, memory of %d: delivered %v", name, memory, got.Delivered)
			}
			return got.Source
		}
		ran := source(-1)
		if none := source(0); none != ran {
			t.Errorf("planned with %s: without memory %v MB from the source, as it ran %v",
				name, none, ran)
		}
		// In two later epochs up to 40 MB less each, of which the class saves some itself.
		if got := source(40_000_000); got > ran-60 {
			t.Errorf("planned with %s, memory of 40 MB: %v MB from the source, as it ran %v",
				name, got, ran)
		}
		if got := source(100_000_000); got != 100 {
			t.Errorf("planned with %s, memory for all: %v MB from the source, want 100", name, got)
		}
	}
}
