package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/hdmlp/hdmlp/internal/plan/access"
)

// stateFile writes the state of a rank alone after its first epoch.
func stateFile(t *testing.T) string {
	t.Helper()
	stream, err := access.New(access.Spec{Samples: 9, Seed: 1<<63 + 1, GlobalBatch: 4, WorldSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`{"checkpoint": [{"version": 1, "random": 2, "epoch": 1, "step": 0,
		"steps": 3, "fingerprint": "00", "samples": 9, "seed": %d, "subset": null, "order": null,
		"shuffle": "torch", "scheme": "strided", "tail": "pad", "drop_last": false,
		"global_batch": 4, "delivered": [{"rank": 0, "world_size": 1, "from": [0, 0], "to": [1, 0],
		"samples": 9, "sum": "%016x"}]}]}`, uint64(1<<63+1), stream.Epoch(0).Audit(0))
	path := filepath.Join(t.TempDir(), "state.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
