package replay

import (
	"math"
	"testing"
)

// TestRanksTakeTheirOwnTimes: each of the ranks that do not wait for each other computes as long as
// it did over the run, which is longer than the fastest one did in each epoch.
func TestRanksTakeTheirOwnTimes(t *testing.T) {
	report := finishedRun()
	delete(report, "ranks")
	rank := func(number int, step, stall float64) map[string]any {
		epochs := []any{}
		for e := range 3 {
			epochs = append(epochs, map[string]any{
				"epoch": e, "batches": 10, "seconds": 9*step + stall,
				"stall": map[string]any{"source": stall},
			})
		}
		return map[string]any{"rank": number, "epochs": epochs}
	}
	report["ranks"] = []any{rank(0, 0.2, 0.01), rank(1, 0.21, 0.6)}
	report["epochs"] = report["epochs"].([]any)[:3]
	for _, e := range report["epochs"].([]any) {
		epoch := e.(map[string]any)
		epoch["seconds"], epoch["stall"] = 2.49, map[string]any{"source": 0.61}
		epoch["step_seconds"] = 0.19 // noise: of a rank that took less than usual
	}
	run, err := readRun(t, report)
	if err != nil {
		t.Fatal(err)
	}
	if !run.Free {
		t.Fatal("they wait for each other")
	}
	job, err := run.job(t.Context(), nil, AsItRan)
	if err != nil {
		t.Fatal(err)
	}
	for at, want := range []float64{0.2, 0.21} {
		got := job.Nodes[0].Work[at] * job.Steps[0]
		if math.Abs(got-want) > 1e-9 {
			t.Errorf("rank %d: a step takes %v s, want %v", at, got, want)
		}
	}
}
