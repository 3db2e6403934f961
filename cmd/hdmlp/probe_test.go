package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/model/envfile"
	"github.com/hdmlp/hdmlp/internal/study/measure"
	"github.com/hdmlp/hdmlp/internal/study/measure/survey"
)

// TestProbeRefusesWrongInput: before anything is measured.
func TestProbeRefusesWrongInput(t *testing.T) {
	quiet(t)
	data, dir := tree(t, 3), t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	empty := makeDataset(t, map[string]int{"a/1.jpg": 0})
	for _, test := range []struct {
		args []string
		want string
	}{
		{nil, "probe takes a directory, or one file or more"},
		{[]string{filepath.Join(dir, "missing")}, "there is no such directory"},
		{[]string{empty}, "all samples of the dataset are empty"},
		{[]string{data, "--time", "1s"}, "allowed: 2s to 1h"},
		{[]string{data, "--transforms", "Resize("}, "--transforms"},
		{[]string{data, "--transforms", " "}, "--transforms is empty"},
		{[]string{data, "--out", fifo}, "not a regular file"},
		{[]string{data, "--out", filepath.Join(dir, "none", "x")}, "no such file or directory"},
		{[]string{data, "--plot", filepath.Join(dir, "x.pdf")}, ".png, .svg or .html"},
		{[]string{data, "--cache", filepath.Join(dir, "none")}, "--cache"},
		{[]string{data, "--cache", fifo}, "not a directory"},
		{[]string{data, "--nodes", "0"}, "allowed: at least 1 node"},
		{[]string{data, "--nodes", "2", "--node", "2"}, "from 0 to --nodes less one"},
		{[]string{data, "--nodes", "2"}, "where node 0 is, is not given"},
		{[]string{data, "--nodes", "2", "--address", ":1"}, "set HDMLP_SECRET"},
	} {
		code, out, errs := statusOf(t, newRootCommand(), append([]string{"probe"}, test.args...)...)
		if code != 2 || out != "" || !strings.Contains(errs, test.want) {
			t.Errorf("%q: exit status %d, printed %q and %q; want %q", test.args, code, out, errs,
				test.want)
		}
	}
}

// TestProbeDoesNotGuessTheNodes: the binary, started by a launcher, says how the nodes are given to
// it.
func TestProbeDoesNotGuessTheNodes(t *testing.T) {
	quiet(t)
	for name, value := range map[string]string{
		"WORLD_SIZE": "2", "SLURM_STEP_NUM_TASKS": "4", "OMPI_COMM_WORLD_SIZE": "2",
		"PMI_SIZE": "3", "PMIX_SIZE": "2", "HDMLP_NODES": "a,b",
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, value)
			code, out, errs := statusOf(t, newRootCommand(), "probe", t.TempDir(), "--time", "2s")
			if code != 2 || out != "" || !strings.Contains(errs, name+"="+value) ||
				!strings.Contains(errs, "`python -m hdmlp probe`") {
				t.Errorf("exit status %d, printed %q and %q", code, out, errs)
			}
			code, _, errs = statusOf(t, newRootCommand(), "probe", t.TempDir(), "--nodes", "1")
			if code != 2 || strings.Contains(errs, name+"=") {
				t.Errorf("with --nodes: exit status %d, printed %q", code, errs)
			}
		})
	}
}

// TestProbeMeasuresAndStores runs the whole command in the least time, on files that exist.
func TestProbeMeasuresAndStores(t *testing.T) {
	quiet(t)
	data := tree(t, 40)
	cache := t.TempDir()
	dir := t.TempDir()
	out, plot := filepath.Join(dir, "env.toml"), filepath.Join(dir, "rates.svg")
	code, text, errs := statusOf(t, newRootCommand(), "probe", data, "--time", "2s", "--cache", cache,
		"--out", out, "--plot", plot, "--index-dir", dir)
	if code != 0 {
		t.Fatalf("exit status %d: %s", code, errs)
	}
	for line := range strings.Lines(text) {
		if n := utf8.RuneCountInString(line) - 1; n > 80 && !strings.Contains(line, dir) &&
			!strings.Contains(line, data) {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	for _, want := range []string{"streams", "In the performance model", "Not measured", out} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	f, err := envfile.Read(out)
	if err != nil {
		t.Fatal(err)
	}
	if f.Threads < 1 || f.Threads > runtime.NumCPU() {
		t.Errorf("%d threads on %d processors", f.Threads, runtime.NumCPU())
	}
	if f.Node.Source.Origin != model.Probed || len(f.Node.Classes) != 2 ||
		f.Node.Classes[1].Path != cache || f.Size.Sample <= 0 {
		t.Errorf("%+v", f)
	}
	if picture, err := os.ReadFile(plot); err != nil || !bytes.Contains(picture, []byte("</svg>")) {
		t.Errorf("the plot has %d bytes: %v", len(picture), err)
	}
	if left, err := os.ReadDir(cache); err != nil || len(left) > 0 {
		t.Errorf("in the cache directory: %v, %v", left, err)
	}
}

// TestProbeStoresBesideTheIndex, in JSON, and keeps what it did not measure.
func TestProbeStoresBesideTheIndex(t *testing.T) {
	quiet(t)
	data, dir := tree(t, 20), t.TempDir()
	probe := func() (a struct {
		Environment string
		Node        model.Node
		Skipped     []struct{ What, Why string }
	},
	) {
		code, text, errs := statusOf(t, newRootCommand(), "probe", data, "--time", "2s", "--json",
			"--index-dir", dir)
		if err := json.Unmarshal([]byte(text), &a); code != 0 || err != nil {
			t.Fatalf("exit status %d, %v: %s", code, err, errs)
		}
		return a
	}
	a := probe()
	if filepath.Dir(a.Environment) != dir || !strings.HasSuffix(a.Environment, envfile.Suffix) {
		t.Errorf("stored in %q", a.Environment)
	}
	if len(a.Skipped) == 0 || a.Node.Source.Origin != model.Probed {
		t.Errorf("%+v", a)
	}
	f, err := envfile.Read(a.Environment)
	if err != nil {
		t.Fatal(err)
	}
	f.Node.Compute = model.Value{Number: 123, Origin: model.Probed}
	if err := os.WriteFile(a.Environment, envfile.Encode(f), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := probe().Node.Compute.Number; got != 123 {
		t.Errorf("compute is %v after another probe, want 123", got)
	}
}

// TestAMarkIsExplained: also if only rates of several nodes have no interval.
func TestAMarkIsExplained(t *testing.T) {
	total := survey.Total{Nodes: 2}
	total.Point.Rate = measure.Estimate{Median: 2, Low: 1, High: 3}
	a := &probeAnswer{Result: &survey.Result{Nodes: 2, Sources: []survey.Total{total}}}
	if text := a.text(80); !strings.Contains(text, "1 to 3 *\n* least to largest") {
		t.Error(text)
	}
}

// TestUnmeasuredSourceIsAFailure: nothing is written of it, and the exit status and a sentence say
// so.
func TestUnmeasuredSourceIsAFailure(t *testing.T) {
	a := &probeAnswer{Result: &survey.Result{
		Mean: 20e3, Nodes: 1, Threads: 2,
		Skipped: []survey.Skipped{{What: "source, samples of 20000 MB", Why: "it hangs"}},
		Node: model.Node{
			Source: model.GuessedSource, Network: model.GuessedPeer, Streams: 1,
		},
	}, size: model.Size{Sample: 20e3, Nodes: 1}}
	if err := a.unmeasured(); err == nil ||
		!strings.Contains(err.Error(), "the source was not measured: it hangs") {
		t.Error(err)
	}
	f, err := envfile.Decode(a.file())
	if err != nil || f.Node.Source.IsKnown() || bytes.Contains(a.file(), []byte("source")) {
		t.Errorf("%v, %s", err, a.file())
	}
}
