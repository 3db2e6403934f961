package scenario_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/study/scenario"
	"github.com/hdmlp/hdmlp/internal/study/simulate"
	"github.com/hdmlp/hdmlp/internal/study/sizes"
)

// small is a scenario with one value of every kind.
const small = `
title = "small"
[environment]
nodes = 2
compute = 100
preprocess = "200 MB/s"
network = "8 Gbit/s"
source_network = "1 GB/s"
source = { 1 = 66, 2 = "86 MB/s" }
source_latency = "2 ms"
[[environment.storage_class]]
capacity = "1 GB"
threads = 2
read = { 2 = 21164 }
[[environment.storage_class]]
name = "ram"
capacity = "64 MiB"
read = 1000
write = { 1 = 500 }
[dataset]
samples = 100
mu = "500 KB"
sigma = 0.1
min = 0.01
[job]
epochs = 3
global_batch_size = 10
drop_last = true
scheme = "strided"
[simulate]
policies = ["cooperative", "naive"]
profile = "thesis"
seed = 7
`

// read makes a scenario of a text.
func read(t *testing.T, text string, set ...string) (*scenario.Scenario, error) {
	t.Helper()
	f, err := scenario.New(filepath.Join(t.TempDir(), "test.toml"), []byte(text))
	if err != nil {
		return nil, err
	}
	return f.Scenario(overrides(t, set)...)
}

func overrides(t *testing.T, set []string) []scenario.Override {
	t.Helper()
	var all []scenario.Override
	for _, text := range set {
		o, err := scenario.ParseOverride(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, o)
	}
	return all
}

func TestScenario(t *testing.T) {
	s, err := read(t, small)
	if err != nil {
		t.Fatal(err)
	}
	ram := model.Curve{{Clients: 1, MBps: 1000}}
	staging := model.Curve{{Clients: 2, MBps: 21164}}
	want := model.Environment{
		Compute: 100, Preprocess: 200, PeerBandwidth: 1000, SourceBandwidth: 1000,
		SourceLatency:    0.002,
		SourceThroughput: model.Curve{{Clients: 1, MBps: 66}, {Clients: 2, MBps: 86}},
		Classes: []model.Class{
			{Capacity: 1000, Threads: 2, Read: staging, Write: staging},
			{
				Capacity: 67.108864,
				Threads:  1,
				Read:     ram,
				Write:    model.Curve{{Clients: 1, MBps: 500}},
			},
		},
	}
	if diff := cmp.Diff(want, s.Env); diff != "" {
		t.Errorf("environment: -want +got\n%s", diff)
	}
	if diff := cmp.Diff([]string{"staging", "ram"}, s.ClassNames); diff != "" {
		t.Error(diff)
	}
	dataset := scenario.Dataset{
		Samples: 100,
		Sizes:   sizes.Distribution{Kind: sizes.Normal, Mu: 0.5, Sigma: 0.1, Min: 0.01},
	}
	if diff := cmp.Diff(dataset, s.Dataset); diff != "" {
		t.Error(diff)
	}
	if s.Title != "small" || s.Nodes != 2 || s.Epochs != 3 || s.GlobalBatch != 10 || !s.DropLast ||
		s.Scheme != access.Strided ||
		s.Profile != simulate.Thesis || s.Seed != 7 ||
		strings.Join(s.Policies, " ") != "cooperative naive" {
		t.Errorf("got %+v", s)
	}
	if err := s.Env.Validate(); err != nil {
		t.Error(err)
	}
	job, err := s.Job()
	if err != nil {
		t.Fatal(err)
	}
	if len(job.Sizes) != 100 || job.Nodes != 2 || job.Epochs != 3 || job.GlobalBatch != 10 ||
		job.Seed != 7 {
		t.Errorf("got a job of %d samples: %+v", len(job.Sizes), job)
	}
}

func TestDefaults(t *testing.T) {
	text, _, _ := strings.Cut(small, "[simulate]")
	s, err := read(t, strings.Replace(strings.Replace(text, "drop_last = true", "", 1),
		`scheme = "strided"`, "", 1))
	if err != nil {
		t.Fatal(err)
	}
	if s.Profile != simulate.Model || s.Seed != 1 || s.DropLast || s.Scheme != access.Uniform ||
		len(s.Policies) != len(scenario.Policies()) {
		t.Errorf("got %+v", s)
	}
}

func TestOverrides(t *testing.T) {
	s, err := read(t, small, "job.epochs=5", "nodes = 4", "storage_class.ram.capacity=2 GB",
		"storage_class.0.threads=4",
		"source={1=10,8=80}", "source.4=40", "network=10GB/s", "storage_class.1.read=5",
		"storage_class.1.read.4=20",
		`policies=["all"]`, "scheme=whole", "drop_last=false")
	if err != nil {
		t.Fatal(err)
	}
	if s.Epochs != 5 || s.Nodes != 4 || s.Env.Classes[1].Capacity != 2000 ||
		s.Env.Classes[0].Threads != 4 || s.Env.PeerBandwidth != 10000 ||
		s.Scheme != access.Whole || s.DropLast || len(s.Policies) != len(scenario.Policies()) {
		t.Errorf("got %+v", s)
	}
	if diff := cmp.Diff(model.Curve{
		{Clients: 1, MBps: 10},
		{Clients: 4, MBps: 40},
		{Clients: 8, MBps: 80},
	}, s.Env.SourceThroughput); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(model.Curve{{Clients: 4, MBps: 20}},
		s.Env.Classes[1].Read); diff != "" {
		t.Error(diff)
	}
}

// TestFaults: whatever is wrong, the message names the key, the value and what is allowed.
func TestFaults(t *testing.T) {
	for _, test := range []struct {
		set  string // in the place of a value of small
		want []string
	}{
		{"job.epochs=0", []string{"job.epochs is 0", "a whole number from 1"}},
		{"job.epochs=-3", []string{"job.epochs is -3", "a whole number from 1"}},
		{"job.epochs=2.5", []string{"job.epochs is 2.5", "a whole number"}},
		{"job.epochs=ten", []string{`job.epochs is "ten"`, "a whole number"}},
		{"environment.compute=-100", []string{"environment.compute is -100: negative", "MB/s"}},
		{"environment.compute=0", []string{"environment.compute is 0: not above 0", "above 0"}},
		{"environment.compute=10 GB", []string{`environment.compute is "10 GB"`, `"10 GB/s"`}},
		{"environment.compute=inf", []string{"environment.compute is +Inf", "finite"}},
		{"environment.compute=nan", []string{"environment.compute is NaN", "finite"}},
		{
			"environment.computer=3",
			[]string{
				"environment.computer is 3: unknown key", `did you mean "compute"?`,
				"preprocess",
			},
		},
		{
			"environment.source={}",
			[]string{
				"environment.source is a table: a curve without points",
				"{ 1 = 66, 4 = 146 }",
			},
		},
		{
			"environment.source={0=66}",
			[]string{"environment.source.0 is 66: not a number of clients", "1 to 1048576"},
		},
		{"environment.source={1=-66}", []string{"environment.source.1 is -66: negative"}},
		{
			"environment.source=true",
			[]string{"environment.source is true", "by the number of clients"},
		},
		{
			"environment.nodes=11",
			[]string{
				"environment.nodes is 11: more nodes than samples in a batch",
				"global_batch_size = 10", "1 to 10",
			},
		},
		{"environment.nodes=70000", []string{"environment.nodes is 70000", "1 to 65535"}},
		{
			"storage_class.ram.capacity=-1",
			[]string{"environment.storage_class.1.capacity is -1: negative", "MB"},
		},
		{"storage_class.7.capacity=1", []string{`there is no storage class "7"`, "0 to 1"}},
		{"storage_class.1=5", []string{"environment.storage_class.1", "not one value"}},
		{
			"environment.storage_class=[]",
			[]string{"environment.storage_class is a list of 0", "at least class 0"},
		},
		{"storage_class.0.threads=0", []string{"environment.storage_class.0.threads is 0"}},
		{"dataset.samples=0", []string{"dataset.samples is 0", "1 to 2147483647"}},
		{"dataset.mu=0", []string{"dataset.mu is 0: not above 0"}},
		{"dataset.sigma=-1", []string{"dataset.sigma is -1: negative"}},
		{"dataset.min=9", []string{"dataset.min is 9", "mu + 4 sigma"}},
		{
			"dataset.samples=5",
			[]string{"job.global_batch_size is 10", "dataset of 5 samples", "drop_last = false"},
		},
		{"dataset.index=nothing.index", []string{"dataset.index", "nothing.index", "no such file"}},
		{"dataset.sizes=nothing.txt", []string{"dataset.sizes", "no such file"}},
		{"job.order=nothing.txt", []string{"job.order", "no such file", "a line per epoch"}},
		{
			"job.scheme=unform",
			[]string{`job.scheme is "unform"`, `did you mean "uniform"?`, "whole or imbalanced"},
		},
		{"job.drop_last=1", []string{"job.drop_last is 1", "true or false"}},
		{"job.size=3", []string{"job.size is 3: unknown key", "global_batch_size"}},
		{
			`simulate.policies=["cooperation"]`,
			[]string{`"cooperation": unknown policy`, `did you mean "cooperative"?`, "minio"},
		},
		{"simulate.policies=[]", []string{"simulate.policies: empty", "naive"}},
		{
			"simulate.profile=thessis",
			[]string{`simulate.profile is "thessis"`, `"model" or "thesis"`},
		},
		{"simulate.seed=-1", []string{"simulate.seed is -1", "from 0"}},
		{"title=", []string{"title"}},
		{"jop.epochs=3", []string{"jop is a table: unknown key", `did you mean "job"?`}},
		{"epochs.x=3", []string{"job.epochs", "is a value, not a table"}},
		{"..=3", []string{"..", "not a key"}},
	} {
		_, err := read(t, small, test.set)
		var faults scenario.Faults
		if !errors.As(err, &faults) {
			t.Errorf("%s: got %v, want faults", test.set, err)
			continue
		}
		for _, want := range test.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: the message lacks %q:\n%v", test.set, want, err)
			}
		}
	}
}

func TestFaultsAtOnce(t *testing.T) {
	_, err := read(t, `
[environment]
nodes = 5
copmute = 3
[[environment.storage_class]]
read = {}
[dataset]
samples = "many"
[job]
epochs = -1
global_batch_size = 4
`)
	var faults scenario.Faults
	if !errors.As(err, &faults) {
		t.Fatalf("got %v", err)
	}
	var keys []string
	for _, f := range faults {
		keys = append(keys, f.Key)
	}
	want := []string{
		"environment.compute", "environment.preprocess", "environment.network",
		"environment.source_network", "environment.source",
		"environment.storage_class.0.capacity", "environment.storage_class.0.read",
		"environment.copmute", "dataset.samples", "dataset.mu", "job.epochs", "environment.nodes",
	}
	if diff := cmp.Diff(want, keys); diff != "" {
		t.Errorf("-want +got\n%s\n%v", diff, err)
	}
}

func TestNotTOML(t *testing.T) {
	_, err := scenario.New("x.toml", []byte("[job]\nepochs = = 3\n"))
	if err == nil || !strings.Contains(err.Error(), "x.toml: line 2, column") {
		t.Errorf("got %v", err)
	}
	if _, err := scenario.Open(t.TempDir()); err == nil ||
		!strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a folder: got %v", err)
	}
}

func TestNamedPoliciesMustBeAbleToRun(t *testing.T) {
	for policy, set := range map[string]string{
		"deepio_ordered": "storage_class.1.capacity=0", "minio": "storage_class.1.capacity=0",
		"staging": "storage_class.0.capacity=0",
	} {
		s, err := read(t, small, set, `policies=["`+policy+`"]`)
		if err != nil {
			t.Fatal(err)
		}
		if wrong := s.Unmet(); len(wrong) != 1 || wrong[0].Value != policy ||
			!strings.Contains(wrong.Error(), `no capacity; allowed: a capacity above 0, or "all"`) {
			t.Errorf("%s with %s: got %v", policy, set, wrong)
		}
		if s, err = read(t, small, set, `policies=["all"]`); err != nil {
			t.Errorf("all with %s: %v", set, err)
		} else if wrong := s.Unmet(); wrong != nil {
			t.Errorf("all with %s: %v", set, wrong)
		} else if why := s.Needs(policy); !strings.Contains(why, "no capacity") {
			t.Errorf("%s with %s needs %q", policy, set, why)
		}
	}
	if s, err := read(t, small, "storage_class.0.capacity=0",
		`policies=["naive","perfect"]`); err != nil {
		t.Fatal(err)
	} else if s.Fits() != nil || s.Unmet() != nil {
		t.Errorf("naive needs no staging buffer: %v, %v", s.Fits(), s.Unmet())
	}
}

func TestSweep(t *testing.T) {
	for text, want := range map[string]scenario.Sweep{
		"nodes=1,2, 4": {
			Key:    "environment.nodes",
			Values: []string{"1", "2", "4"},
		},
		"source={1=2,2=3},{1=4}": {
			Key:    "environment.source",
			Values: []string{"{1=2,2=3}", "{1=4}"},
		},
		`title="a,b",c`: {Key: "title", Values: []string{`"a,b"`, "c"}},
		"storage_class.ram.capacity=0": {
			Key:    "environment.storage_class.ram.capacity",
			Values: []string{"0"},
		},
		"environment.compute=1 GB/s,20": {
			Key:    "environment.compute",
			Values: []string{"1 GB/s", "20"},
		},
	} {
		got, err := scenario.ParseSweep(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
	}
	for _, text := range []string{"nodes", "=1", "nodes=", "nodes=1,,2", "nodes=1,1"} {
		if got, err := scenario.ParseSweep(text); err == nil {
			t.Errorf("%s: got %v, want an error", text, got)
		}
	}
}
