package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/daemon"
	"github.com/hdmlp/hdmlp/internal/job"
	"github.com/hdmlp/hdmlp/internal/prefetch"
)

// TestPrintStats: what waits, what is put together and what could not be read is
// said in words.
func TestPrintStats(t *testing.T) {
	s := &daemon.Stats{Version: "0.1.0", PID: 7, Connections: 2, Jobs: []*job.Report{
		{Job: "a", Dataset: "/slow", Assembling: true, WorldSize: 2, Sentence: "The job is being put together since 3.0 s."},
		{
			Job: "b", Dataset: "/data", Samples: 10, Bytes: 2000, Policy: "cooperative", WorldSize: 1, GlobalBatch: 2, Sentence: "In 1 epoch(s)...",
			Waiting: &job.Waiting{Sample: 5, Path: "/data/a/5.jpg", Seconds: 12.34},
			Epochs:  []job.EpochSummary{{EpochReport: prefetch.EpochReport{Stall: map[string]float64{"memory": 0.1, "source": 2}}, StallSeconds: 2.1}},
			Classes: []job.ClassReport{{Name: "memory", Room: 1000, Used: 500}},
			Faults:  []prefetch.Fault{{Sample: 3, Path: "/data/a/3.jpg", Reason: "the file is missing", Count: 2, Policy: prefetch.Skip}},
		},
	}}
	var out bytes.Buffer
	if err := printStats(s, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"daemon 0.1.0, pid 7, 2 connection(s), 2 job(s)",
		"job a: /slow, 2 rank(s)\nThe job is being put together",
		"job b: /data, 10 samples",
		"waiting for sample 5 (/data/a/5.jpg) since 12.3 s",
		"source 2.000, memory 0.100",
		"class memory: 500 bytes of 1000 bytes",
		"unreadable: sample 3 (/data/a/3.jpg): the file is missing, skip, 2 time(s)",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
}

// TestExitCode: one meaning for each status, in words and in JSON.
func TestExitCode(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{{nil, 0}, {errors.New("failed"), 1}, {badInput("wrong"), 2}, {errors.Join(errors.New("scan"), context.Canceled), 130}} {
		for _, asJSON := range []string{"", "--json"} {
			root := newRootCommand()
			var out bytes.Buffer
			root.SetErr(&out)
			if err := root.ParseFlags(strings.Fields(asJSON)); err != nil {
				t.Fatal(err)
			}
			if got := exitCode(root, c.err); got != c.want {
				t.Errorf("%v: %d, want %d", c.err, got, c.want)
			}
			if c.err != nil && strings.HasPrefix(out.String(), "{") != (asJSON != "") {
				t.Errorf("%v, %q: printed %s", c.err, asJSON, &out)
			}
		}
	}
}
