package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/study/replay"
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
		first := compareRun("r", run, &replay.Result{Epochs: []float64{predicted}}).Rows[0]
		if first.Predicted != predicted-without || first.Measured != 3.25-without ||
			strings.Contains(first.What, "after") != (without > 0) {
			t.Errorf("predicted are %v s: %+v", predicted, first)
		}
	}
}

// TestWhatTheRunDidNotMeasureIsSaid: in the table and in JSON, if a question depends on it.
func TestWhatTheRunDidNotMeasureIsSaid(t *testing.T) {
	report := filepath.Join(t.TempDir(), "report.json")
	if err := os.WriteFile(report, []byte(`{"dataset": "/data", "samples": 8, "bytes": 8000000,
		"policy": "cooperative", "world_size": 1, "global_batch_size": 4, "seed": 1,
		"shuffle": "torch", "scheme": "strided", "tail": "pad", "source_threads": 4,
		"tiers": [{"tier": "source"}], "ranks": [{"rank": 0}],
		"classes": [{"name": "memory", "capacity": 8000000,
			"held_at_start": {"samples": 8, "bytes": 8000000}}],
		"epochs": [{"epoch": 0, "batches": 2, "seconds": 0.2, "step_seconds": 0.1}],
		"environment": {"source": {"s_per_mb": 0.5, "s_per_mb_queued": 0.5, "origin": "probed"}}
		}`), 0o600); err != nil {
		t.Fatal(err)
	}
	const doubt = "The run read 0.000 MB from the source: too little to say at what rate that is " +
		"read. It is taken to be 2.000 MB/s, as measured before the run."
	for _, memory := range []string{"", "0"} {
		o := fromRunOptions{
			report: report, memory: memory, indexDir: t.TempDir(),
			asks: func(flag string) bool { return flag == "memory" && memory != "" },
		}
		var table, data bytes.Buffer
		if err := runFromRun(t.Context(), o, &table); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(table.String(), doubt) != (memory != "") {
			t.Errorf("memory %q:\n%s", memory, table.String())
		}
		o.json = true
		if err := runFromRun(t.Context(), o, &data); err != nil {
			t.Fatal(err)
		}
		var c comparison
		if err := json.Unmarshal(data.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		if memory == "" {
			continue
		}
		if len(c.Unsure) != 1 || c.Unsure[0] != doubt {
			t.Errorf("%q", c.Unsure)
		}
		// 8 MB at 2 MB/s
		if took := c.WhatIf.Rows[0].WhatIf; took < 3.5 {
			t.Errorf("without memory the epoch takes %v s", took)
		}
	}
}

// TestSizesAreThoseOfAnyDataset: of shards they come from the index; of a list of files, which is
// gone with its process, the mean is taken.
func TestSizesAreThoseOfAnyDataset(t *testing.T) {
	shards, list := t.TempDir(), t.TempDir()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for i := range 4 {
		if err := w.WriteHeader(&tar.Header{
			Name: fmt.Sprintf("%d.jpg", i), Size: 1000, Mode: 0o644,
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for path, data := range map[string][]byte{
		filepath.Join(shards, "a.tar"): archive.Bytes(),
		filepath.Join(list, "a.bin"):   make([]byte, 4000),
	} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for dir, mean := range map[string]bool{shards: false, list: true, "/none": true} {
		report := filepath.Join(t.TempDir(), "report.json")
		text := fmt.Sprintf(`{"dataset": %q, "samples": 4, "bytes": 4000, "policy": "staging",
			"world_size": 1, "global_batch_size": 4, "seed": 1, "shuffle": "torch",
			"scheme": "strided", "tail": "pad", "source_threads": 1, "tiers": [{"tier": "source"}],
			"ranks": [{"rank": 0}], "epochs": [{"epoch": 0, "batches": 1, "seconds": 1}],
			"environment": {"source": {"s_per_mb": 0.5, "s_per_mb_queued": 0.5,
				"origin": "measured"}}}`, dir)
		if err := os.WriteFile(report, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		o := fromRunOptions{
			report: report, indexDir: t.TempDir(), asks: func(string) bool { return false },
		}
		var out bytes.Buffer
		if err := runFromRun(t.Context(), o, &out); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(out.String(), "assuming the mean size") != mean {
			t.Errorf("%s:\n%s", dir, out.String())
		}
	}
}
