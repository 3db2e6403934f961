package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/daemon"
	"github.com/hdmlp/hdmlp/internal/report"
)

// TestStatsDescribeWaitingAssemblingAndUnreadable checks the sentences of `hdmlp stats`.
func TestStatsDescribeWaitingAssemblingAndUnreadable(t *testing.T) {
	s := &daemon.Stats{Version: "0.1.0", PID: 7, Connections: 2, Jobs: []*report.Report{
		{
			Settings:   report.Settings{Job: "a", Dataset: "/slow", WorldSize: 2},
			Assembling: true,
			Sentence:   "The job is being put together since 3.0 s.",
		},
		{
			Settings: report.Settings{
				Job: "b", Dataset: "/data", Samples: 10, Bytes: 2000, Policy: "cooperative",
				WorldSize: 1, GlobalBatch: 2,
			},
			Sentence: "In 1 epoch(s)...",
			Waiting:  &report.Waiting{Sample: 5, Path: "/data/a/5.jpg", Seconds: 12.34},
			Epochs: []report.Epoch{{
				EpochTally: report.EpochTally{
					Tally: report.Tally{Stall: map[string]float64{"memory": 0.1, "source": 2}},
				},
				StallSeconds: 2.1,
			}},
			Faults: []report.Fault{{
				Sample: 3,
				Path:   "/data/a/3.jpg",
				Reason: "the file is missing",
				Count:  2,
				Policy: "skip",
			}},
			Resources: report.Resources{
				Classes: []report.Class{{Name: "memory", Capacity: 1000, Used: 500}},
			},
		},
	}}
	var out bytes.Buffer
	if err := printStats(s, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"daemon 0.1.0, pid 7, 2 connections, 2 jobs",
		"job a: /slow, 2 ranks\nThe job is being put together",
		"job b: /data, 10 samples",
		"waiting 12.3 s for sample 5 (/data/a/5.jpg)",
		"source 2.000, memory 0.100",
		"class memory: 500 bytes of 1000 bytes",
		"unreadable: sample 3 (/data/a/3.jpg): the file is missing; on_error skip, 2 times",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
}

// TestStatsOfAJobHaveARowPerNode and one for all. A node that does not answer has its last report,
// or no row.
func TestStatsOfAJobHaveARowPerNode(t *testing.T) {
	tally := func(n int64) report.Tally {
		return report.Tally{
			Batches: n, Samples: 10 * n,
			Stall:  map[string]float64{"peer": 0.1, "source": float64(n)},
			Source: report.Amount{Samples: 1, Bytes: n << 20},
			Reads: map[string]report.Amount{
				"peer":   {Samples: n, Bytes: n << 10},
				"memory": {Samples: n, Bytes: n << 11},
				"source": {Samples: 1, Bytes: 1},
			},
		}
	}
	memory := []report.Class{{Name: "memory", Capacity: 1000, Used: 250}}
	jobs := []*report.ClusterReport{{
		Job: "train", Dataset: "/data", Samples: 10, Bytes: 2000, Policy: "cooperative",
		WorldSize: 4, GlobalBatch: 8, Sentence: "All is well.",
		Total: tally(9), Staging: report.Staging{Size: 200, Used: 30, Extra: 20}, Classes: memory,
		Unreadable: 3,
		Nodes: []report.NodeReport{
			{
				Node: 0, Responding: true, Tally: tally(4),
				Staging: report.Staging{Size: 100, Used: 10}, Classes: memory, Unreadable: 3,
				Faults: []report.Fault{{
					Sample: 3,
					Path:   "/data/a/3.jpg",
					Reason: "the file is missing",
					Count:  2,
					Policy: "skip",
				}},
				Waiting:  &report.Waiting{Sample: 5, Path: "/data/a/5.jpg", Seconds: 12.34},
				Bypassed: []report.Peer{{Node: 1, Alive: true, Failed: 4, Reason: "i/o timeout"}},
			},
			{
				Node:    1,
				Age:     12,
				Tally:   tally(5),
				Staging: report.Staging{Size: 100, Used: 20, Extra: 20},
				Classes: memory,
			},
			{Node: 2, Age: -1},
		},
	}}
	var out bytes.Buffer
	if err := printCluster(jobs, &out); err != nil {
		t.Fatal(err)
	}
	want := `job train: /data, 10 samples, 2.0 KiB, policy cooperative, 3 nodes, 4 ranks, global batch 8
All is well.
         node  batches  samples  from source     peer    memory  staging  stall s    stall by cause
            0        4       40      4.0 MiB  4.0 KiB   8.0 KiB     10 %    4.100    source 4.000, peer 0.100
  1, 12 s ago        5       50      5.0 MiB  5.0 KiB  10.0 KiB     33 %    5.100    source 5.000, peer 0.100
          all        9       90      9.0 MiB  9.0 KiB  18.0 KiB     23 %    9.100    source 9.000, peer 0.100
class memory: 250 bytes of 1000 bytes, by node: 0: 25 %, 1: 25 %
node 0: waiting 12.3 s for sample 5 (/data/a/5.jpg)
node 0 bypasses node 1, 4 samples so far: i/o timeout
unreadable on node 0: sample 3 (/data/a/3.jpg): the file is missing; on_error skip, 2 times
unreadable on node 0: 2 more
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &out, want)
	}
}

// TestStatsRejectsConflictingAndEmptyFlags before it connects to the daemon.
func TestStatsRejectsConflictingAndEmptyFlags(t *testing.T) {
	for _, args := range []string{"stats --json --prometheus", "stats --job="} {
		root := newRootCommand()
		root.SetArgs(strings.Fields(args))
		if err := root.Execute(); !errors.As(err, new(inputError)) {
			t.Errorf("%s: %v", args, err)
		}
	}
}

func TestExitCodeFollowsTheErrorsKind(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("failed"), 1},
		{badInput("wrong"), 2},
		{errors.Join(errors.New("scan"), context.Canceled), 130},
	} {
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
