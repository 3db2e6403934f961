package replay

import (
	"math"
	"testing"
)

// waitedInThePause is a run on two nodes whose ranks wait for each other: rank 0 had the last batch
// of epoch 0 0.2 s before rank 1, and waited for it in the pause. Rank 1 began 0.015 s later.
func waitedInThePause() map[string]any {
	report := onNodes()
	for i, of := range []struct{ before, seconds, pause, stall float64 }{
		{0.01, 1.75, 0.25, 1.2}, {0.01, 1.92, 0.065, 1.38},
	} {
		node := report["nodes"].([]any)[i].(map[string]any)
		first, second := node["epochs"].([]any)[0].(map[string]any), node["epochs"].([]any)[1]
		first["pause_seconds"], first["seconds"] = of.before, of.seconds
		first["stall"] = map[string]any{"source": of.stall}
		second.(map[string]any)["pause_seconds"] = of.pause
		rank := node["ranks"].([]any)[0].(map[string]any)
		rank["seconds"], rank["stall"] = of.seconds+0.9, first["stall"]
	}
	return report
}

// TestWhenNodesBegin: follows from when the second epoch begins, which is the same time for all;
// whether ranks wait for each other, from the time for the run with its pauses.
func TestWhenNodesBegin(t *testing.T) {
	run, err := readRun(t, waitedInThePause())
	if err != nil {
		t.Fatal(err)
	}
	if run.Free {
		t.Error("ranks are said not to wait for each other: they took 2.900 and 2.885 s for the run")
	}
	job, err := run.job(t.Context(), nil, AsItRan)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []float64{0, 0.015} {
		if got := job.Nodes[i].Start; math.Abs(got-want) > 1e-9 {
			t.Errorf("node %d begins after %v s, want %v", i, got, want)
		}
	}
}
