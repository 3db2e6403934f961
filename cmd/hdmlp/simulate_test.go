package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hdmlp/hdmlp/internal/plan/policies"
	"github.com/hdmlp/hdmlp/internal/study/simulate"
)

var rewriteSimulations = flag.Bool("rewrite-simulations", false,
	"rewrite the golden files of hdmlp simulate")

// tinyScenario runs in a moment: 2 nodes, 24 samples of one size, in a fixed order.
const tinyScenario = `
title = "A tiny job"
[environment]
nodes = 2
compute = 100
preprocess = 200
network = 10000
source_network = 2000
source = { 1 = 66, 2 = 86 }
[[environment.storage_class]]
name = "staging"
capacity = 16
threads = 2
read = { 2 = 21164 }
[[environment.storage_class]]
name = "ram"
capacity = 12
threads = 2
read = { 2 = 21164 }
[[environment.storage_class]]
name = "ssd"
capacity = 12
threads = 2
read = { 2 = 86 }
[dataset]
sizes = "sizes.txt"
[job]
epochs = 3
global_batch_size = 8
drop_last = true
order = "order.txt"
[simulate]
policies = ["all"]
seed = 1
`

// tiny writes the scenario and its files, and returns its path.
func tiny(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	order := "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23\n" +
		"23 5 16 2 9 20 11 0 7 14 3 18 21 12 1 8 15 22 6 13 4 10 19 17\n" +
		"12 0 19 7 22 3 10 15 2 17 5 23 8 14 20 1 11 6 18 9 4 21 13 16\n"
	for name, text := range map[string]string{
		"s.toml":    text,
		"order.txt": order,
		"sizes.txt": strings.Repeat("1.5\n", 24),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "s.toml")
}

// askSimulate runs the command on a scenario.
func askSimulate(t *testing.T, change func(*simulateOptions)) (string, error) {
	t.Helper()
	opts := simulateOptions{
		file:   tiny(t, tinyScenario),
		width:  100,
		memory: func() (int64, error) { return 1 << 30, nil },
	}
	change(&opts)
	var out bytes.Buffer
	err := runSimulate(t.Context(), opts, &out)
	return strings.ReplaceAll(out.String(), filepath.Dir(opts.file), "DIR"), err
}

// goldenPolicies are those whose results the golden files hold. The list stays as it is: the
// results of a policy that is added are checked in internal/plan and internal/study/simulate.
var goldenPolicies = []string{
	"perfect", "naive", "staging", "frequency", "cooperative", "deepio_ordered",
	"deepio_opportunistic", "lbann_dynamic", "lbann_preloading", "sharded", "locality", "minio",
	"partitioned",
}

// TestSimulateGolden checks that the results of profile thesis, which are compared with the
// thesis's tables, never change by a digit. -rewrite-simulations is for what may change around
// them: titles, columns, keys.
func TestSimulateGolden(t *testing.T) {
	for name, change := range map[string]func(*simulateOptions){
		"table.golden": func(*simulateOptions) {},
		"json.golden":  func(o *simulateOptions) { o.json = true },
		"csv.golden":   func(o *simulateOptions) { o.csv = true },
		"sweep.golden": func(o *simulateOptions) {
			o.sweep = []string{"storage_class.ram.capacity=0,6 MB,12", "compute=50,100"}
			o.policies = []string{"perfect", "frequency", "deepio_ordered"}
		},
		"scaling.golden": func(o *simulateOptions) { o.scaling = "1,2,4,8" },
	} {
		got, err := askSimulate(t, func(o *simulateOptions) {
			o.profile, o.policies = string(simulate.Thesis), goldenPolicies
			change(o)
		})
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("testdata", "simulate", name)
		if *rewriteSimulations {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s differs. A result must not change; if only what surrounds the results "+
				"is meant to, run go test ./cmd/hdmlp -run TestSimulateGolden "+
				"-rewrite-simulations. -want +got\n%s", path, diff)
		}
	}
}

// simulateAnswer has the documented keys of --json.
type simulateAnswer struct {
	Profile string
	Seed    uint64
	Bound   float64 `json:"lower_bound_source_mb"`
	Time    float64 `json:"time_bound_s"`
	Points  []struct {
		Set      map[string]string
		Policies map[string]simulate.Result
	}
	Policies map[string]simulate.Result
}

// TestSimulateJSONIsConsistentForEveryPolicy checks totals, the lower bound, and that no policy is
// faster than perfect.
func TestSimulateJSONIsConsistentForEveryPolicy(t *testing.T) {
	out, err := askSimulate(t, func(o *simulateOptions) { o.json = true })
	if err != nil {
		t.Fatal(err)
	}
	var a simulateAnswer
	if err := json.Unmarshal([]byte(out), &a); err != nil {
		t.Fatal(err)
	}
	if a.Profile != "model" || a.Seed != 1 || math.Abs(a.Bound-36) > 1e-6 ||
		len(a.Policies) != len(policies.All()) {
		t.Errorf("profile %s, seed %d, bound %v, %d policies; want model, 1, 36 and %d", a.Profile,
			a.Seed, a.Bound, len(a.Policies), len(policies.All()))
	}
	// 36 MB leave the source, which gives 86 MB/s to both nodes together.
	if a.Time < 36./86 || a.Time > a.Policies["cooperative"].Runtime {
		t.Errorf("the runtime is at least %v s, and cooperative takes %v s", a.Time,
			a.Policies["cooperative"].Runtime)
	}
	for name, r := range a.Policies {
		if !r.Supported {
			if !strings.HasPrefix(name, "lbann") || r.Reason == "" {
				t.Errorf("%s cannot run: %q", name, r.Reason)
			}
			continue
		}
		samples, mb := r.Reads.Source.Samples+r.Reads.Remote.Samples,
			r.Reads.Source.MB+r.Reads.Remote.MB
		for _, place := range r.Reads.Local {
			samples, mb = samples+place.Samples, mb+place.MB
		}
		if samples != 72 || math.Abs(mb-108) > 1e-6 {
			t.Errorf("%s reads %d samples, %v MB; the job has 72, 108 MB", name, samples, mb)
		}
		if r.Runtime < a.Policies["perfect"].Runtime-1e-9 {
			t.Errorf("%s takes %v s, less than perfect's %v", name, r.Runtime,
				a.Policies["perfect"].Runtime)
		}
		if math.Abs(r.ShareOfTimeBound-r.Runtime/a.Time) > 1e-9 {
			t.Errorf("%s takes %v s, %v of the least possible, %v s", name, r.Runtime,
				r.ShareOfTimeBound, a.Time)
		}
		if name != "perfect" && math.Abs(r.ShareOfBound-r.SourceTotal/a.Bound) > 1e-6 {
			t.Errorf("%s reads %v MB from the source, %v of the bound", name, r.SourceTotal,
				r.ShareOfBound)
		}
	}
}

// TestSimulateIsDeterministic for any number of workers.
func TestSimulateIsDeterministic(t *testing.T) {
	ask := func(memory int64) string {
		out, err := askSimulate(t, func(o *simulateOptions) {
			o.json, o.scaling = true, "1,2,4"
			o.memory = func() (int64, error) { return memory, nil }
		})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if diff := cmp.Diff(ask(1<<30), ask(1<<20)); diff != "" {
		t.Errorf("with less memory, and so one after another: %s", diff)
	}
}

func TestSimulateSweepsValues(t *testing.T) {
	out, err := askSimulate(t, func(o *simulateOptions) {
		o.csv = true
		o.sweep = []string{"compute=50 MB/s,100,200"}
		o.policies = []string{"perfect"}
	})
	if err != nil {
		t.Fatal(err)
	}
	lines, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	if err != nil || len(lines) != 4 || lines[1][0] != "50 MB/s" ||
		lines[0][0] != "environment.compute" {
		t.Fatalf("%v\n%s", err, out)
	}
	column := map[string]int{}
	for i, name := range lines[0] {
		column[name] = i
	}
	for i, want := range []string{"1.08", "0.54", "0.27"} {
		if got := lines[i+1][column["runtime_s"]]; !strings.HasPrefix(got, want) {
			t.Errorf("perfect takes %s s, want %s: 54 MB per node", got, want)
		}
	}
}

func TestSimulateWritesPlots(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "plots")
	if _, err := askSimulate(t, func(o *simulateOptions) { o.dir = dir }); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"index.html", "result.json", "result.csv", "runtime.png",
		"runtime.svg", "batches.png", "batches.svg",
	} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() < 500 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSimulateReportsEachMistake checks for exit status 2, one line per mistake, and no output.
func TestSimulateReportsEachMistake(t *testing.T) {
	for _, test := range []struct {
		args []string
		want []string
	}{
		{nil, []string{"one scenario file"}},
		{[]string{"nowhere.toml"}, []string{"nowhere.toml", "no such file"}},
		{
			[]string{"FILE", "--set", "job.epochs=-1", "--set", "compute=fast", "--set", "nodez=3"},
			[]string{
				"job.epochs is -1", `environment.compute is "fast"`,
				"nodez is 3: unknown key",
			},
		},
		{[]string{"FILE", "--set", "epochs"}, []string{`--set "epochs" is not KEY=VALUE`}},
		{
			[]string{"FILE", "--set", "nodes=9"},
			[]string{"environment.nodes is 9: more nodes than samples in a batch"},
		},
		{[]string{"FILE", "--set", "source={}"}, []string{"a curve without points"}},
		{
			[]string{"FILE", "--policy", "minio,wrong"},
			[]string{`"wrong": unknown policy`, "cooperative"},
		},
		{
			[]string{"FILE", "--policy", "deepio_ordered", "--set", "storage_class.ram.capacity=0"},
			[]string{"deepio_ordered", "storage class 1", "no capacity"},
		},
		{
			[]string{"FILE", "--set", "storage_class.staging.capacity=1"},
			[]string{"the largest sample has 1.5 MB", "1.5 MB or more"},
		},
		{
			[]string{"FILE", "--profile", "fast"},
			[]string{`--profile is "fast"`, `"model" or "thesis"`},
		},
		{[]string{"FILE", "--seed", "-4"}, []string{"--seed is -4"}},
		{[]string{"FILE", "--set", "seed=x", "--seed", "1"}, []string{"seed=x: conflicts with --seed"}},
		{
			[]string{"FILE", "--sweep", "epochs=1,x,-2"},
			[]string{`job.epochs is "x"`, "job.epochs is -2"},
		},
		{[]string{"FILE", "--sweep", "epochs=1,1"}, []string{"appears twice"}},
		{
			[]string{"FILE", "--sweep", "a=1", "--sweep", "b=1", "--sweep", "c=1"},
			[]string{"once or twice"},
		},
		{
			[]string{"FILE", "--sweep", "epochs=1", "--sweep", "job.epochs=2"},
			[]string{"job.epochs is given twice"},
		},
		{[]string{"FILE", "--scaling", "1,2,16"}, []string{"environment.nodes is 16"}},
		{
			[]string{"FILE", "--scaling", "1,2", "--sweep", "epochs=1,2"},
			[]string{"--scaling and --sweep"},
		},
		{[]string{"FILE", "--json", "--csv"}, []string{"--json and --csv"}},
		{
			[]string{"--from-run", "FILE", "--sweep", "epochs=1", "--scaling", "1,2", "--csv"},
			[]string{"--from-run", "--sweep, --scaling, --csv", "scenario file"},
		},
		{[]string{"--from-run", "FILE"}, []string{"not a JSON object", "loader.report()"}},
		{[]string{"--from-run", "FILE", "--nodes", "0"}, []string{"--nodes is 0"}},
		{[]string{"--from-run", "FILE", "--memory", "ten"}, []string{"is not a size", "10GB"}},
		{[]string{"FILE", "--nodes", "0"}, []string{"need --from-run"}},
		{[]string{"FILE", "--sets", "a=b"}, []string{"--sets"}},
	} {
		var out, errs bytes.Buffer
		root := newRootCommand()
		args := append([]string{"simulate"}, test.args...)
		for i := range args {
			if args[i] == "FILE" {
				args[i] = tiny(t, tinyScenario)
			}
		}
		root.SetArgs(args)
		root.SetOut(&out)
		root.SetErr(&errs)
		ran, err := root.ExecuteContextC(t.Context())
		if code := exitCode(ran, err); code != 2 || out.Len() > 0 {
			t.Errorf("%v: exit status %d, %v, printed %q", test.args, code, err, out.String())
		}
		for _, want := range test.want {
			if !strings.Contains(errs.String(), want) && !strings.Contains(err.Error(), want) {
				t.Errorf("%v: the message lacks %q:\n%v", test.args, want, err)
			}
		}
	}
}

func TestSimulateThatDoesNotFitInMemoryIsRejected(t *testing.T) {
	_, err := askSimulate(t, func(o *simulateOptions) {
		o.memory = func() (int64, error) { return 1000, nil }
	})
	var input inputError
	if !errors.As(err, &input) || !strings.Contains(err.Error(), "needs about") ||
		!strings.Contains(err.Error(), "1000 bytes are available") {
		t.Errorf("got %v", err)
	}
	// It is rejected before the sizes of two billion samples are drawn.
	text := strings.NewReplacer(`sizes = "sizes.txt"`, "samples = 2147483647\nmu = 1",
		`order = "order.txt"`, "").Replace(tinyScenario)
	start := time.Now()
	_, err = askSimulate(t, func(o *simulateOptions) { o.file = tiny(t, text) })
	if !errors.As(err, &input) || !strings.Contains(err.Error(), "needs about") ||
		time.Since(start) > time.Minute {
		t.Errorf("after %v: %v", time.Since(start), err)
	}
}

// TestInterruptedSimulationPrintsWhatIsFinished checks also that the exit status is 130.
func TestInterruptedSimulationPrintsWhatIsFinished(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	opts := simulateOptions{
		file: tiny(t, strings.NewReplacer(`sizes = "sizes.txt"`, "samples = 300000\nmu = 0.1",
			`order = "order.txt"`, "", "epochs = 3", "epochs = 500").Replace(tinyScenario)),
	}
	opts.memory = func() (int64, error) { return 1 << 32, nil }
	opts.policies, opts.json = []string{"deepio_ordered", "lbann_dynamic", "staging", "naive"}, true
	time.AfterFunc(500*time.Millisecond, cancel)
	var out bytes.Buffer
	start := time.Now()
	err := runSimulate(ctx, opts, &out)
	if took := time.Since(start); took > time.Minute {
		t.Errorf("it took %v to end", took)
	}
	if code := exitCode(newSimulateCommand(), err); code != 130 {
		t.Errorf("exit status %d, %v", code, err)
	}
	if out.Len() == 0 {
		return // interrupted while sizes were drawn
	}
	var a struct{ Interrupted bool }
	if err := json.Unmarshal(out.Bytes(), &a); err != nil || !a.Interrupted {
		t.Errorf("%v\n%s", err, out.String())
	}
}
