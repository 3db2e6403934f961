package replay

import (
	"math"
	"strings"
	"testing"
)

// TestSourceThatHungOnce: an epoch in which the source hung is no evidence of its rate in others.
func TestSourceThatHungOnce(t *testing.T) {
	for _, c := range []struct {
		busy []float64 // of each epoch, in which 50 MB are read
		want float64   // MB/s
		says string
	}{
		{[]float64{1, 1, 1}, 50, ""},
		{[]float64{21, 1, 1}, 50, "epoch 0"},
		{[]float64{1, 21, 1}, 50, "epoch 1"},
		{[]float64{2, 1, 1}, 37.5, ""}, // busy machines differ as much
	} {
		report := finishedRun()
		total := 0.0
		for e, busy := range c.busy {
			report["epochs"].([]any)[e].(map[string]any)["tiers"] = []any{map[string]any{
				"tier": "source", "bytes": 50_000_000, "busy_seconds": busy,
			}}
			total += busy
		}
		report["tiers"].([]any)[0] = map[string]any{
			"tier": "source", "bytes": 150_000_000, "busy_seconds": total,
		}
		run, err := readRun(t, report)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := run.sourceRate(); math.Abs(got.mbps-c.want) > 1e-9 {
			t.Errorf("busy for %v s: %+v, want %v", c.busy, got, c.want)
		}
		if got := strings.Join(run.Unsure(), " "); (got != "") != (c.says != "") ||
			!strings.Contains(got, c.says) {
			t.Errorf("busy for %v s: %q", c.busy, got)
		}
	}
}

// TestLinksThatCarriedLittle: links from which too little came to measure them are not taken to be
// without limit, and the comparison reports that.
func TestLinksThatCarriedLittle(t *testing.T) {
	for _, c := range []struct {
		mb    int        // that each node received in an epoch
		peaks [2]float64 // MB/s
		want  float64
		says  bool
	}{
		{25, [2]float64{3, 5}, 5, false},
		{0, [2]float64{3, 5}, 3, true},
		{0, [2]float64{}, 2, true}, // the environment: 0.5 s for 1 MB
	} {
		report := onNodes()
		report["environment"] = map[string]any{"network": map[string]any{
			"latency_s": 0.1, "s_per_mb": 0.4, "origin": "measured",
		}}
		for i, node := range report["nodes"].([]any) {
			node := node.(map[string]any)
			for _, e := range node["epochs"].([]any) {
				e.(map[string]any)["reads"].(map[string]any)["peer"] = map[string]any{
					"bytes": c.mb * 1_000_000,
				}
			}
			peer := node["tiers"].([]any)[1].(map[string]any)
			peer["bytes"], peer["peak_mbps"] = 3*c.mb*1_000_000, c.peaks[i]
		}
		run, err := readRun(t, report)
		if err != nil {
			t.Fatal(err)
		}
		if got := run.link(); math.Abs(got.mbps-c.want) > 1e-9 {
			t.Errorf("%+v: %v MB/s", c, got)
		}
		if got := len(run.Unsure()) > 0; got != c.says {
			t.Errorf("%+v: %v", c, run.Unsure())
		}
	}
}
