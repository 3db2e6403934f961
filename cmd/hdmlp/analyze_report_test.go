package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/study/analysis"
)

const measured = "../../internal/study/analysis/render/testdata/measured.json"

// analyze runs a command line, and returns what it prints.
func analyze(t *testing.T, args ...string) (string, error) {
	t.Helper()
	root := newRootCommand()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(append([]string{"analyze"}, args...))
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

// TestAnAnalysisIsDrawnAgain: from its JSON, which it prints and writes again.
func TestAnAnalysisIsDrawnAgain(t *testing.T) {
	dir := t.TempDir()
	prices := filepath.Join(dir, "prices.toml")
	if err := os.WriteFile(prices, []byte("core = 0.05\nhour = 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := analyze(t, "--from", measured, "--price", prices, "--what-if",
		"memory=6600MB,compute=2x", "--out", filepath.Join(dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Preparing samples limits this job", "what if memory=6.", "price/h",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	printed, err := analyze(t, "--from", filepath.Join(dir, "out", "result.json"), "--json")
	if err != nil {
		t.Fatal(err)
	}
	var r analysis.Report
	if err := json.Unmarshal([]byte(printed), &r); err != nil || math.Round(r.Now.Samples) != 812 {
		t.Errorf("%v: %+v", err, r.Now)
	}
}

// TestTheSimulatorTakesTheEnvironment: that an analysis writes, and its prediction is that of the
// analysis.
func TestTheSimulatorTakesTheEnvironment(t *testing.T) {
	dir := t.TempDir()
	if _, err := analyze(t, "--from", measured, "--out", dir); err != nil {
		t.Fatal(err)
	}
	scenario := filepath.Join(dir, "s.toml")
	if err := os.WriteFile(scenario, []byte(`title = "The job"
[dataset]
samples = 6000
mu = 0.11
[job]
epochs = 3
global_batch_size = 64
[environment]
nodes = 1
network = 1000
source_network = 1000
[simulate]
policies = ["cooperative"]
`), 0o600); err != nil {
		t.Fatal(err)
	}
	root := newRootCommand()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs([]string{
		"simulate", scenario, "--environment", filepath.Join(dir, "environment.toml"),
	})
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err, out.String())
	}
	for _, want := range []string{"cooperative", "environment.toml replaces compute"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
}

// TestAnAnalysisNamesWhatIsWrong: the flag, the file, the key, its value and what is allowed.
func TestAnAnalysisNamesWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	prices := file("prices.toml", "cores = 1")
	none := file("none.json", "{}")
	for want, args := range map[string][]string{
		"after --, as in": {},
		"put -- before":   {"python"},
		"--from: /nowhere: cannot read the analysis":     {"--from", "/nowhere"},
		"--from: " + none + ": not the JSON":             {"--from", none},
		"--price: " + prices + ": cores: unknown key":    {"--from", measured, "--price", prices},
		`--what-if: "ram" is not a key; allowed: thread`: {"--from", measured, "--what-if", "ram=1"},
		`--what-if: "8" is not KEY=VALUE`:                {"--from", measured, "--what-if", "8"},
		"--out: mkdir " + none:                           {"--from", measured, "--out", none},
	} {
		text, err := analyze(t, args...)
		if input := (inputError{}); !errors.As(err, &input) || !strings.Contains(err.Error(), want) {
			t.Errorf("analyze %q: %v, want %s; printed %s", args, err, want, text)
		}
	}
}
