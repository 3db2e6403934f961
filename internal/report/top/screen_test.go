package top

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/hdmlp/hdmlp/internal/lab/testkit"
	"github.com/hdmlp/hdmlp/internal/model/remedy"
	"github.com/hdmlp/hdmlp/internal/report"
)

const mib = 1 << 20

// tally returns a rank's tally after some seconds, with 10 batches and 0.2 s of stall per second.
func tally(seconds float64) report.Tally {
	n := int64(10 * seconds)
	return report.Tally{
		Batches: n, Samples: 32 * n, Seconds: seconds,
		Stall: map[string]float64{"source": 0.15 * seconds, "peer": 0.05 * seconds, "memory": 0},
		Reads: map[string]report.Amount{
			"source": {Bytes: n * mib / 10},
			"peer":   {Bytes: 3 * n * mib},
			"memory": {Bytes: 120 * n * mib},
		},
		Source: report.Amount{Bytes: n * mib / 5},
	}
}

// sum adds tallies.
func sum(of ...report.Tally) (out report.Tally) {
	out = report.Tally{Stall: map[string]float64{}, Reads: map[string]report.Amount{}}
	for _, t := range of {
		out.Batches += t.Batches
		out.Samples += t.Samples
		out.Seconds += t.Seconds
		out.Source.Bytes += t.Source.Bytes
		for cause, s := range t.Stall {
			out.Stall[cause] += s
		}
		for tier, a := range t.Reads {
			out.Reads[tier] = report.Amount{Bytes: out.Reads[tier].Bytes + a.Bytes}
		}
	}
	return out
}

// running returns the report, after some seconds, of a job with 4 epochs of 500 steps, on nodes
// with two ranks each.
func running(seconds float64, nodes int) *report.ClusterReport {
	j := &report.ClusterReport{
		Job:         "torchrun-none-0-gpu-a:29500/0",
		Dataset:     "/scratch/datasets/imagenet/train",
		Samples:     1_281_167,
		Bytes:       137 << 30,
		Policy:      "cooperative",
		WorldSize:   2 * nodes,
		GlobalBatch: 64 * nodes,
		Planned:     4,
		Steps:       500,
		Bounds:      report.Bounds{BoundShare: 1.004},
	}
	for n := range nodes {
		node := report.NodeReport{
			Node: n, Host: "gpu-" + string(rune('a'+n)), Address: fmt.Sprintf("10.0.0.%d", n+1),
			Responding: true,
			Tally:      sum(tally(seconds), tally(seconds)),
			Classes: []report.Class{
				{Name: "memory", Capacity: 1000 * mib, Used: 1000 * mib},
				{Name: "file", Capacity: 4000 * mib, Used: int64(n+1) * 1000 * mib},
			},
			Staging: report.Staging{Size: 64 * mib, Used: 31 * mib, Extra: mib},
		}
		for k := range 2 {
			step := int(10 * seconds)
			node.Ranks = append(node.Ranks, report.RankTally{
				Rank: 2*n + k, Open: true,
				Position: report.Position{Epoch: step / 500, Step: step % 500},
				Tally:    tally(seconds),
				Staging:  report.Staging{Size: 32 * mib, Used: 16 * mib},
			})
		}
		j.Nodes = append(j.Nodes, node)
	}
	j.Total = tally(seconds)
	j.Utilisation = 0.987
	j.Classes = []report.Class{{
		Name:     "memory",
		Capacity: int64(nodes) * 1000 * mib,
		Used:     int64(nodes) * 1000 * mib,
	}, {Name: "file", Capacity: int64(nodes) * 4000 * mib, Used: 3000 * mib}}
	j.Staging = report.Staging{Size: int64(nodes) * 64 * mib, Used: int64(nodes) * 32 * mib}
	return j
}

var start = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

func after(seconds float64, jobs ...*report.ClusterReport) *Snapshot {
	return &Snapshot{start.Add(time.Duration(seconds * float64(time.Second))), jobs}
}

// TestScreensMatchGoldenFiles draws the screens in testdata.
func TestScreensMatchGoldenFiles(t *testing.T) {
	change := func(
		j *report.ClusterReport, change func(*report.ClusterReport),
	) *report.ClusterReport {
		change(j)
		return j
	}
	two := Screen{
		Now:     after(72, running(72, 2)),
		Before:  after(71, running(71, 2)),
		Earlier: after(60, running(60, 2)),
	}
	silent := func(j *report.ClusterReport) {
		n := &j.Nodes[1]
		n.Responding = false
		n.Age = 12
		n.Why = "timed out after 2s"
		j.Nodes = append(j.Nodes,
			report.NodeReport{
				Node:    2,
				Address: "10.0.0.3",
				Age:     -1,
				Why:     "its daemon is gone",
				Ranks:   []report.RankTally{{Rank: 4}, {Rank: 5}},
			})
	}
	planning := func(j *report.ClusterReport) {
		j.Nodes[1].Planning = true
		j.Nodes[0].Bypassed = []report.Peer{
			{Node: 1, Alive: true, Reason: "i/o timeout"},
			{Node: 1, Alive: true},
		}
	}
	assembling := func(j *report.ClusterReport) {
		j.Nodes[1] = report.NodeReport{
			Node:       1,
			Host:       "gpu-b",
			Responding: true,
			Assembling: true,
			Sentence:   "The job is being put together since 3.0 s.",
		}
	}
	for name, s := range map[string]Screen{
		"nothing": {
			Problem: "no daemon is running for this user at @hdmlp-0: connection refused",
			Width:   50,
		},
		"no-job": {Now: after(1)},
		"first":  {Now: two.Now, Width: 80, Height: 24, Ranks: true},
		"limit": {
			Now: after(72, change(running(72, 2), func(j *report.ClusterReport) {
				j.Limit = &remedy.Now{Prediction: remedy.Prediction{
					Busy:  remedy.Busy{Resource: "source", Seconds: 50, Share: 1},
					Next:  &remedy.Busy{Resource: "compute", Seconds: 40.04, Share: 0.8},
					Epoch: 50,
				}}
				j.Remedies = []remedy.Remedy{{
					Change: remedy.Change{Key: remedy.Memory, Amount: 2 << 30}, Before: 50, After: 40.04,
					Text: "memory=2.0 GiB per node instead of 1000.0 MiB",
				}}
			})),
			Before: after(71, running(71, 2)), Width: 120,
		},
		"two-nodes": {
			Now:     two.Now,
			Before:  two.Before,
			Earlier: two.Earlier,
			Width:   80,
			Height:  24,
			Keys:    "q quit",
		},
		"ranks": {
			Now:     two.Now,
			Before:  two.Before,
			Earlier: two.Earlier,
			Width:   110,
			Ranks:   true,
		},
		"unlimited": {Now: two.Now, Before: two.Before, Earlier: two.Earlier, Ranks: true},
		"narrow": {
			Now:     two.Now,
			Before:  two.Before,
			Earlier: two.Earlier,
			Width:   40,
			Height:  12,
		},
		"scrolled": {
			Now:     two.Now,
			Before:  two.Before,
			Earlier: two.Earlier,
			Width:   80,
			Height:  6,
			From:    7,
		},
		"colours": {
			Now:     two.Now,
			Before:  two.Before,
			Earlier: two.Earlier,
			Width:   80,
			Colour:  true,
			Keys:    "q quit",
		},
		"one-node": {
			Now:     after(72, running(72, 1)),
			Before:  after(71, running(71, 1)),
			Earlier: after(60, running(60, 1)),
			Width:   80,
		},
		"two-jobs": {
			Now: after(72, running(72, 1),
				change(running(20, 1), func(j *report.ClusterReport) {
					j.Job, j.Planned = "validation", 0
				})),
			Before: after(71, running(71, 1)),
			Width:  80,
		},
		"between-epochs": {
			Now: after(100, change(running(100, 1), func(j *report.ClusterReport) {
				j.Planned = 0
			})),
			Width: 80,
		},
		"one-epoch": {
			Now: after(20, change(running(20, 1), func(j *report.ClusterReport) {
				j.Planned = 1
			})),
			Width: 80,
		},
		"silent": {
			Now:     after(72, change(running(72, 2), silent)),
			Before:  two.Before,
			Earlier: two.Earlier,
			Width:   100,
			Ranks:   true,
		},
		"assembling": {
			Now:     after(72, change(running(72, 2), assembling)),
			Before:  two.Before,
			Earlier: two.Earlier,
			Width:   80,
		},
		"planning": {
			Now:     after(72, change(running(72, 2), planning)),
			Before:  two.Before,
			Earlier: two.Earlier,
			Width:   100,
		},
		"given-back": {Now: after(72, change(running(72, 1), func(j *report.ClusterReport) {
			j.Classes[0].Used = 700 * mib
			j.Classes[0].Returned = &report.Returned{
				Bytes: 500 * mib, Now: 300 * mib, Segments: 8, Viewed: 70 * mib, Age: 3,
				Why: "control group /a had 20.0 MiB left of 2.0 GiB", Paused: true,
			}
		})), Before: after(71, running(71, 1)), Width: 80},
		"put-together": {Now: after(1,
			&report.ClusterReport{
				Job: "j", Dataset: "/data", WorldSize: 2,
				Sentence: "The job is being put together since 3.0 s, 1200 files found so far; 1 " +
					"of 2 rank(s) wait for it.", Nodes: []report.NodeReport{
					{Responding: true, Assembling: true},
				},
			}), Width: 60},
		"trouble": {Now: after(2000, change(running(200, 1), func(j *report.ClusterReport) {
			j.Nodes[0].Waiting = &report.Waiting{
				Sample:  7,
				Path:    "/scratch/datasets/imagenet/train/n01440764/7.jpg",
				Seconds: 65,
			}
			j.Nodes[0].Unreadable, j.Nodes[0].Faults = 21,
				[]report.Fault{{Sample: 3, Path: "/3.jpg", Reason: "the file is missing"}}
			j.Nodes[0].Ranks[1].Open = false
			j.Nodes[0].Ranks[0].Position = report.Position{Epoch: 4}
		})), Before: after(1999, running(200, 1)), Width: 80, Ranks: true},
	} {
		t.Run(name, func(t *testing.T) {
			lines := s.Lines()
			if s.Height > 0 && len(lines) > s.Height {
				t.Errorf("%d lines on a screen of %d", len(lines), s.Height)
			}
			for _, l := range lines {
				if w := ansi.StringWidth(l); s.Width > 0 && w > s.Width {
					t.Errorf("%d columns on a screen of %d: %q", w, s.Width, l)
				}
			}
			got := s.Text() + "\n"
			testkit.Compare(t, name+".txt", got)
			if !s.Colour && strings.Contains(got, "\x1b") {
				t.Error("unexpected colours")
			}
		})
	}
}

// TestPacesAndDurations compares paces with results computed by hand.
func TestPacesAndDurations(t *testing.T) {
	before, now := after(10, running(10, 2)), after(12, running(12, 2))
	p := nodePace(before, now, now.Jobs[0].Job, &now.Jobs[0].Nodes[1])
	if !p.known || p.batches != 20 || p.bytes["peer"] != 60*mib || p.bytes["source"] != 4*mib ||
		p.ranks != 2 || !about(p.stall["source"], 0.15) || !about(p.stalled(), 0.2) {
		t.Errorf("%+v", p)
	}
	now.Jobs[0].Nodes[1].Age = 1 // a second later it would have been as much again
	if p = nodePace(before, now, now.Jobs[0].Job, &now.Jobs[0].Nodes[1]); p.batches != 40 {
		t.Errorf("with a report that is a second old: %+v", p)
	}
	late := running(1, 2)
	if p = nodePace(after(10, running(10, 2)), after(12, late), late.Job,
		&late.Nodes[0]); p.batches != 0 || p.stalled() != 0 || p.bytes["memory"] != 0 {
		t.Errorf("counters that went back: %+v", p)
	}
	var all pace
	all.add(pace{})
	all.add(between(&report.Tally{},
		&report.Tally{Batches: 4, Stall: map[string]float64{"source": 4}}, 2, 2))
	all.add(between(&report.Tally{}, &report.Tally{Batches: 2, Stall: map[string]float64{"peer": 2}},
		2, 2))
	if all.batches != 3 || !about(all.stall["source"], 0.5) || !about(all.stall["peer"], 0.25) ||
		all.ranks != 4 {
		t.Errorf("added up: %+v", all)
	}
	whole := between(&report.Tally{}, &report.Tally{
		Stall: map[string]float64{"source": 9, "peer": 3},
	}, 2, 2)
	if !about(whole.stall["source"], 0.75) || !about(whole.stall["peer"], 0.25) {
		t.Errorf("a stall that began before the interval: %+v", whole)
	}
	at, ok := progressOf(before, now, now.Jobs[0])
	if !ok || at.epoch != 0 || at.step != 120 || !about(at.done, 0.06) || at.left != 1880 ||
		at.speed < 10 {
		t.Errorf("%+v", at)
	}
	for seconds, want := range map[float64]string{
		0.2:    "1 s",
		59.5:   "1 min 0 s",
		3661:   "1 h 1 min",
		200000: "2 d 7 h",
		1e300:  "more than 100 years",
	} {
		if got := duration(seconds); got != want {
			t.Errorf("%v s: %q, want %q", seconds, got, want)
		}
	}
}

func about(got, want float64) bool { return got > want-1e-9 && got < want+1e-9 }
