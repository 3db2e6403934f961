package main

import (
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/replay"
	"github.com/hdmlp/hdmlp/internal/rerun"
)

// TestComparedTimesAreNotNegative: the first second is left out only if enough of an epoch remains,
// predicted and measured.
func TestComparedTimesAreNotNegative(t *testing.T) {
	report := `{"dataset": "/data", "samples": 4, "bytes": 4000, "policy": "staging",
		"world_size": 1, "global_batch_size": 4, "seed": 1, "shuffle": "torch",
		"scheme": "strided", "tail": "pad", "tiers": [{"tier": "source"}],
		"ranks": [{"rank": 0}], "epochs": [{"epoch": 0, "batches": 1, "seconds": 3.25}]}`
	run, err := replay.Read([]byte(report))
	if err != nil {
		t.Fatal(err)
	}
	for predicted, without := range map[float64]float64{0.9: 0, 1.5: 0, 2.5: 1} {
		first := compareRun("r", run, &rerun.Result{Epochs: []float64{predicted}}).Rows[0]
		if first.Predicted != predicted-without || first.Measured != 3.25-without ||
			strings.Contains(first.What, "after") != (without > 0) {
			t.Errorf("predicted are %v s: %+v", predicted, first)
		}
	}
}
