package report

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/model/remedy"
)

// limitedRun returns the report of one of this many nodes: 2 epochs over 1000 MB in samples of
// 0.1 MB, with 400 MB of memory on each node, a source that gives all nodes 10 MB/s and training
// that consumes 25 MB/s on each.
func limitedRun(node, nodes int) *Report {
	epoch := func(number int, seconds, python float64) EpochTally {
		return EpochTally{number, Tally{
			Batches: 100, Samples: 10_000 / int64(nodes), Seconds: seconds,
			Stall: map[string]float64{"source": seconds / 3, Python: python},
			Reads: map[string]Amount{"source": {10_000, 1000e6}}, Source: Amount{10_000, 1000e6},
		}}
	}
	r := &Report{
		Settings: Settings{
			Job: "j", Node: node, Nodes: nodes, WorldSize: nodes, Samples: 10_000, Bytes: 1000e6,
			Needed: 1000e6, Positions: 10_000, Steps: 100, GlobalBatch: 100, Planned: 3,
		},
		Ranks: []RankReport{
			{Rank: node, Epochs: []EpochTally{epoch(0, 101, 0), epoch(1, 61, 1)}},
		},
		Preprocessing: &Preprocessing{Threads: 4}, // no sample was transformed
		Resources:     Resources{Classes: []Class{{Name: "memory", Capacity: 400e6}}},
		Plans: Plans{Known: &model.Node{
			Compute: model.Value{Number: 25, Origin: model.Measured},
			Source:  model.GivenRate(10/float64(nodes), 0),
			Network: model.GivenRate(1000, 0),
			Classes: []model.NodeClass{
				{Name: "memory", Read: model.GivenRate(5000, 0)},
			},
			Streams: 8,
		}},
	}
	r.Complete(nil, 400e6*int64(nodes))
	return r
}

// TestMemoryCountsByItsCapacity: in predictions memory becomes full, whatever it holds now, and
// more of it is a remedy.
func TestMemoryCountsByItsCapacity(t *testing.T) {
	r := limitedRun(0, 1)
	r.Classes[0].Used = 100e6
	r.Diagnose(true, false)
	memory := slices.ContainsFunc(r.Remedies, func(x remedy.Remedy) bool {
		return x.Key == remedy.Memory
	})
	if r.Limit.Source != 600e6 || !memory {
		t.Errorf("%d bytes from the source, remedies: %+v", r.Limit.Source, r.Remedies)
	}
	r.Ranks[0].Epochs = r.Ranks[0].Epochs[:1] // memory is still being filled
	r.Epochs = nil
	r.Complete(nil, 400e6)
	if r.Diagnose(true, false); r.Limit.Source != 600e6 {
		t.Errorf("in the first epoch: %d bytes from the source", r.Limit.Source)
	}
}

// TestEpochsOfAStoppedDaemonAreNotMeasured: it is notified at once of batches of several epochs.
func TestEpochsOfAStoppedDaemonAreNotMeasured(t *testing.T) {
	r := limitedRun(0, 1)
	whole := r.Ranks[0].Epochs[1]
	none := whole
	none.Seconds, none.Stall = 0.001, nil
	waited := whole
	waited.Seconds, waited.Stall = 30, map[string]float64{"source": 61}
	for i, e := range []EpochTally{none, waited, whole} {
		e.Epoch = 2 + i
		r.Ranks[0].Epochs = append(r.Ranks[0].Epochs, e)
	}
	r.Epochs = nil
	r.Complete(nil, 400e6)
	r.Diagnose(true, false)
	if r.Limit.Resource != remedy.Source || math.Abs(r.Limit.Epoch-60) > 1e-6 ||
		r.Limit.Measured != 61 {
		t.Errorf("%+v", r.Limit)
	}
}

func TestDiagnose(t *testing.T) {
	r := limitedRun(0, 1)
	before := r.Sentence
	r.Diagnose(true, false)
	l := r.Limit
	if l == nil || l.Resource != remedy.Source || math.Abs(l.Epoch-60) > 1e-6 || l.Measured != 61 ||
		l.Next.Resource != remedy.Compute || l.Source != 600e6 {
		t.Fatalf("%+v", l)
	}
	if len(r.Remedies) == 0 || r.Remedies[0].Key != remedy.Memory || r.Remedies[0].Amount != 600e6 {
		t.Errorf("%+v", r.Remedies)
	}
	if !strings.HasPrefix(r.Sentence, before) || !strings.Contains(r.Sentence,
		"The source limits later epochs: by the model they take 60.0 s (measured: 61.0 s). The "+
			"cheapest remedy is memory=572.3 MiB per node instead of 381.5 MiB: ") {
		t.Errorf("%q", r.Sentence)
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var as struct {
		Limit struct {
			Resource string  `json:"resource"`
			Share    float64 `json:"share"`
			Epoch    float64 `json:"epoch_seconds"`
			Next     struct {
				Resource string `json:"resource"`
			} `json:"next"`
		} `json:"limit"`
		Remedies []struct {
			Change string  `json:"change"`
			Amount float64 `json:"amount"`
			After  float64 `json:"epoch_seconds_after"`
		} `json:"remedies"`
	}
	if err := json.Unmarshal(text, &as); err != nil {
		t.Fatal(err)
	}
	if as.Limit.Resource != "source" || as.Limit.Share < 0.999 ||
		as.Limit.Next.Resource != "compute" || as.Remedies[0].Change != "memory" ||
		as.Remedies[0].After > 40.001 {
		t.Errorf("%s", text)
	}
}

// TestWarmCachesCountWithoutAPolicyThatCaches: what they hold is read from there.
func TestWarmCachesCountWithoutAPolicyThatCaches(t *testing.T) {
	r := limitedRun(0, 1)
	if r.Diagnose(false, false); r.Limit.Resource != remedy.Source || r.Limit.Source != 1000e6 {
		t.Errorf("nothing is held: %+v", r.Limit)
	}
	r.Classes[0].Capacity, r.Classes[0].Used = 1000e6, 1000e6
	if r.Diagnose(false, false); r.Limit.Resource != remedy.Compute || r.Limit.Source != 0 ||
		len(r.Remedies) > 0 {
		t.Errorf("all is held: %+v, %+v", r.Limit, r.Remedies)
	}
}

// TestNothingIsDiagnosedOfLittle: of a report without batches, or without an environment, or with
// an impossible one.
func TestNothingIsDiagnosedOfLittle(t *testing.T) {
	for name, change := range map[string]func(*Report){
		"no batches":     func(r *Report) { r.Ranks, r.Epochs = nil, nil },
		"no environment": func(r *Report) { r.Known = nil },
		"no samples":     func(r *Report) { r.Samples = 0 },
		"nonsense":       func(r *Report) { r.Known.Source.PerMB = -1 },
	} {
		r := limitedRun(0, 1)
		change(r)
		if r.Diagnose(true, false); r.Limit != nil || r.Remedies != nil {
			t.Errorf("%s: %+v", name, r.Limit)
		}
		if _, ok := r.Summary().WhatIf(nil); ok {
			t.Errorf("%s: what-if is answered", name)
		}
	}
}

func TestPythonLimits(t *testing.T) {
	r := limitedRun(0, 1)
	r.Epochs[1].Stall[Python] = 30
	r.Diagnose(true, false)
	if r.Limit.Resource != remedy.Python || len(r.Remedies) > 0 || r.Limit.Seconds != 30 {
		t.Errorf("%+v, %+v", r.Limit, r.Remedies)
	}
}

// TestWhatRanksWaitedForShowsItsRate: for 20 of 61 s they waited for a source that read 1000 MB,
// which is more certain than what was fitted to single reads, but less than what was given.
func TestWhatRanksWaitedForShowsItsRate(t *testing.T) {
	for origin, want := range map[model.Origin]float64{
		model.Measured: 600 * 61.0 / 1000, model.Given: 60,
	} {
		r := limitedRun(0, 1)
		r.Known.Compute.Number = 250
		r.Known.Source.Origin = origin
		r.Diagnose(true, false)
		if math.Abs(r.Limit.Epoch-want) > 1e-6 || r.Limit.Resource != remedy.Source {
			t.Errorf("%s: %v s, want %v", origin, r.Limit.Epoch, want)
		}
	}
	for cause, want := range map[string]string{
		"transform ImgDecode": remedy.Preprocessing, "peer": remedy.Network, "file": "file",
		"consumer": "", "handover": "", Writeback: "",
	} {
		r := limitedRun(0, 1)
		r.Epochs[1].Stall, r.Epochs[1].StallSeconds = map[string]float64{cause: 30}, 30
		r.Epochs[1].Reads = map[string]Amount{"peer": {1, 61e6}, "file": {1, 61e6}, Writeback: {1, 1}}
		r.Diagnose(true, false)
		got := ""
		for _, d := range r.run.Did {
			if d.Saturated && d.Resource != remedy.Source { // that was in the first epoch
				got = d.Resource
			}
		}
		if got != want {
			t.Errorf("%s: %q was saturated, want %q", cause, got, want)
		}
	}
	r := limitedRun(0, 1)
	for i := range r.Epochs {
		r.Epochs[i].Stall = map[string]float64{"source": 3}
		r.Epochs[i].StallSeconds = 3
	}
	r.Diagnose(true, false)
	for _, d := range r.run.Did {
		if d.Saturated {
			t.Errorf("%+v, but ranks hardly waited for it", d)
		}
	}
	// An estimate that the run has disproved: an epoch takes at most as long as it took.
	r = limitedRun(0, 1)
	r.Known.Source.Coefficients = model.Coefficients{PerMB: 5, Queued: 5}
	r.Known.Source.Origin = model.Measured
	r.Epochs[0].Stall, r.Epochs[1].Stall = nil, nil
	if r.Diagnose(true, false); r.Limit.Epoch > 61 {
		t.Errorf("an epoch that took 61 s is predicted to take %v s", r.Limit.Epoch)
	}
}

// TestClusterIsDiagnosedByAllNodes that have reported, from what they send as JSON: 2 nodes hold
// 800 of 1000 MB, so that the source reads 200 MB in the 20 s of the computation. A node that
// reports something impossible leaves the report without a limit.
func TestClusterIsDiagnosedByAllNodes(t *testing.T) {
	var nodes []NodeReport
	var first *ClusterReport
	for n := range 2 {
		r := limitedRun(n, 2)
		r.Diagnose(true, false)
		c := r.Summary()
		text, err := json.Marshal(c.Nodes[0])
		if err != nil {
			t.Fatal(err)
		}
		var sent NodeReport
		if err := json.Unmarshal(text, &sent); err != nil {
			t.Fatal(err)
		}
		if nodes = append(nodes, sent); n == 0 {
			first = c
		}
	}
	nodes = append(nodes, NodeReport{Node: 2, Age: -1}) // it has never answered
	all := first.Over(nodes)
	if all.Limit == nil || all.Limit.Resource != remedy.Compute ||
		math.Abs(all.Limit.Epoch-20) > 1e-6 || all.Limit.Source != 200e6 {
		t.Fatalf("%+v", all.Limit)
	}
	a, ok := all.WhatIf([]remedy.Change{{Key: remedy.Nodes, Amount: 1}})
	if !ok || a.Job != "j" || math.Abs(a.Then.Epoch-60) > 1e-6 || a.Then.Resource != remedy.Source {
		t.Errorf("on one node: %+v", a)
	}
	nodes[1].Run.Nodes = -1
	if all = first.Over(nodes); all.Limit != nil {
		t.Errorf("%+v", all.Limit)
	}
}

// TestPredictionsDoNotJumpAtTheEndOfAnEpoch: what an epoch reads ahead for the next one makes one
// of them long and the next one short, while the source gives the same all the time.
func TestPredictionsDoNotJumpAtTheEndOfAnEpoch(t *testing.T) {
	var before float64
	for epochs := 5; epochs <= 12; epochs++ {
		r := limitedRun(0, 1)
		r.Known.Compute.Number = 250
		first := r.Epochs[0]
		r.Epochs = nil
		for n := range epochs {
			e := first
			e.Epoch, e.Seconds = n, 50
			if n%2 == 0 {
				e.Seconds = 70
			}
			r.Epochs = append(r.Epochs, e)
		}
		r.Diagnose(true, false)
		if r.Limit == nil || r.Limit.Resource != remedy.Source {
			t.Fatalf("limit %+v", r.Limit)
		}
		if now := r.Limit.Epoch; before > 0 && math.Abs(now-before) > 0.1*before {
			t.Errorf("after %d epochs %v s, before that %v s", epochs, now, before)
		}
		before = r.Limit.Epoch
	}
}

// TestGivenThreadsMayBeRaised checks that the advice for a job with one thread for transforms on a
// machine with more processors is to use these, although even more would help.
func TestGivenThreadsMayBeRaised(t *testing.T) {
	r := limitedRun(0, 1)
	r.Known.Preprocess = model.Value{Number: 10, Origin: model.Measured}
	r.Known.Compute.Number, r.Known.Source = 1e4, model.GivenRate(1e4, 0)
	r.Preprocessing = &Preprocessing{Samples: 1, Threads: 1, Most: 8}
	r.Diagnose(true, false)
	if len(r.Remedies) != 1 || r.Remedies[0].Text != "transform_threads=8 instead of 1" {
		t.Errorf("%+v", r.Remedies)
	}
}

// TestTimeOutsideUsualStepsIsNamed: training consumes 1000 MB in 40 s, and a later epoch took 100.
// The sentence says what the rest went to, if it is much and nothing that was measured.
func TestTimeOutsideUsualStepsIsNamed(t *testing.T) {
	const other = " s went to steps longer than usual, or to other things than steps"
	for name, c := range map[string]struct {
		stall   float64 // of all ranks
		seconds float64
		nodes   int
		origin  model.Origin
		want    float64
		says    string
	}{
		"a pause":                 {3, 100, 1, model.Measured, 57, "at least 57.0" + other + "), "},
		"stalls explain it":       {59, 100, 1, model.Measured, 0, "(measured: 100 s), "},
		"a small difference":      {0, 50, 1, model.Measured, 0, "(measured: 50.0 s), "},
		"the rate was given":      {3, 100, 1, model.Given, 0, "(measured: 100 s), "},
		"other nodes are unknown": {3, 100, 2, model.Measured, 77, other + ", or to waiting for o"},
	} {
		r := limitedRun(0, c.nodes)
		r.Known.Compute.Origin, r.Known.Source = c.origin, model.GivenRate(1000, 0)
		later := &r.Epochs[1]
		later.Seconds, later.StallSeconds = c.seconds, c.stall
		later.Stall = map[string]float64{"handover": c.stall}
		r.Epochs[0].Seconds = 500
		r.Diagnose(true, false)
		if l := r.Limit; l.Resource != remedy.Compute || math.Abs(l.Other-c.want) > 1e-6 ||
			!strings.Contains(r.Sentence, c.says) {
			t.Errorf("%s: %+v, %q", name, l, r.Sentence)
		}
	}
}

// TestStallsOfOtherNodesExplainLongSteps: of all nodes it is known what ranks waited for, and while
// one of them waits for data, the steps of the others are long.
func TestStallsOfOtherNodesExplainLongSteps(t *testing.T) {
	for stall, want := range map[float64]float64{10: 70, 70: 0} {
		var all *ClusterReport
		var nodes []NodeReport
		for n := range 2 {
			r := limitedRun(n, 2)
			later := &r.Epochs[1]
			later.Seconds = 100
			later.Stall = nil
			later.StallSeconds = float64(n) * stall
			if r.Diagnose(true, false); r.Limit.Other == 0 && n == 0 {
				t.Errorf("node 0 alone: %+v", r.Limit)
			}
			all = r.Summary()
			nodes = append(nodes, all.Nodes[0])
		}
		all = all.Over(nodes)
		if l := all.Limit; math.Abs(l.Other-want) > 1e-6 ||
			strings.Contains(all.Sentence, "waiting for other nodes") {
			t.Errorf("%v s of stalls: %+v, %q", stall, l, all.Sentence)
		}
	}
}
