package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/report"
)

// TestStatsDrawsASavedReport draws a report of one node and one of all, and refuses what is none.
func TestStatsDrawsASavedReport(t *testing.T) {
	quiet(t)
	var one report.Report
	one.Job = "train"
	one.Steps, one.Nodes = 10, 1
	one.Series = &report.Series{}
	for step := range 40 {
		one.Series.Add(step, &report.Point{
			Batches: 2, Longest: 0.5, Stall: 0.6, At: float64(step),
			Bytes: map[string]int64{"memory": 1e6},
			Usage: report.Usage{
				CPU: float64(step) / 2, Memory: 1e9, Read: map[string]int64{"source": int64(step) * 1e6},
			},
		})
	}
	dir := t.TempDir()
	saved := func(name string, v any) string {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, v := range map[string]any{"one": &one, "all": one.Summary()} {
		out := filepath.Join(dir, "plots-"+name)
		code, printed, errs := runCommand(t, "stats", "--from", saved(name, v), "--out", out)
		if code != 0 || !strings.Contains(printed, "stall.png") {
			t.Fatalf("%s: exit status %d, %q, %q", name, code, printed, errs)
		}
		page, err := os.ReadFile(filepath.Join(out, "index.html"))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			"How the job went: train", "Stall per step", "epoch 3", "Reads by tier",
		} {
			if !strings.Contains(string(page), want) {
				t.Errorf("%s: the page lacks %q", name, want)
			}
		}
	}
	file, err := os.Open(filepath.Join(dir, "one"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if read, err := savedReport("-", file); err != nil || read.Job != "train" {
		t.Errorf("standard input: %v", err)
	}
	one.Series.Width = 0
	for name, v := range map[string]any{"one": &one, "all": one.Summary()} {
		code, _, errs := runCommand(t, "stats", "--from", saved(name, v), "--out", dir+"/x")
		if code == 0 || name == "one" && !strings.Contains(errs, "the report was changed") {
			t.Errorf("%s: exit status %d, %q", name, code, errs)
		}
	}
	one.Series = nil
	out := " --out " + dir + "/x"
	for args, want := range map[string]string{
		"--from " + saved("empty", &one) + out:                   "no rank had taken a batch",
		"--from " + saved("list", []int{1}) + out:                "not a report",
		"--from " + saved("other", map[string]int{"a": 1}) + out: "not a report of a job",
		"--from " + dir + "/none" + out:                          "no such file",
		"--from " + dir + "/none":                                "give --out too",
		out:                                                      "give either --job, a running",
		out + " --from x --job y":                                "give either --job, a running",
		out + " --from x --json":                                 "--out and --json are mutually",
	} {
		code, _, errs := runCommand(t, append([]string{"stats"}, strings.Fields(args)...)...)
		if code != 2 || !strings.Contains(errs, want) || strings.Contains(errs, "Go value") {
			t.Errorf("%s: exit status %d, %q", args, code, errs)
		}
	}
}
