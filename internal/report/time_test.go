package report

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/plan"
)

// timed returns the report of one of two nodes that read 400 MB in each of three epochs. A node
// holds 100 MB in its class.
func timed() *Report {
	r := &Report{
		Settings:  Settings{Nodes: 2, WorldSize: 2, Bytes: 400e6, Samples: 400, Planned: 3, Steps: 10},
		Ranks:     []RankReport{{Staging: Staging{Size: 10e6}}},
		Resources: Resources{Classes: []Class{{Name: "memory", Capacity: 100e6}}},
	}
	for e := range 3 {
		r.Ranks[0].Epochs = append(r.Ranks[0].Epochs, EpochTally{Epoch: e, Tally: Tally{
			Batches: 10, Samples: 200, Seconds: 6,
			Reads: map[string]Amount{"memory": {100, 100e6}, "source": {100, 100e6}},
		}})
	}
	return r
}

// machine is an environment whose capacities are not the report's.
func machine() *model.Environment {
	return &model.Environment{
		Compute: 100, Preprocess: 1000, PeerBandwidth: 1000, SourceBandwidth: 1000,
		SourceThroughput: model.Constant(100),
		Classes: []model.Class{
			{Threads: 8, Read: model.Constant(1000), Write: model.Constant(1000)},
			{Threads: 1, Read: model.Constant(1000), Write: model.Constant(1000)},
		},
	}
}

// TestRuntimeIsComparedWithTheLeast: the source gives both nodes 100 MB/s together.
func TestRuntimeIsComparedWithTheLeast(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Report, *model.Environment)
		pauses []float64 // before each epoch, seconds
		bound  float64
		share  float64
	}{
		// 400 MB, and twice what 200 MB of caches do not hold: 800 MB leave the source.
		"source": {nil, nil, 8, 18. / 8},
		// The ranks did something else for 1 s before the first epoch, in which the caches were
		// filled already, and for 3 s before the second; that hides a part of the reads.
		"pauses": {nil, []float64{1, 3}, 4 + 4.8 + 1.8, 22 / 10.6},
		// 200 MB per node at 10 MB/s, without the tenth batch of an epoch.
		"given compute": {func(r *Report, e *model.Environment) {
			e.Compute = 10
			r.Known = &model.Node{Compute: model.Value{Number: 10, Origin: model.Given}}
		}, nil, 54, 18. / 54},
		// It was measured in a slow moment: in these epochs, a rank needed 6 s for the batches.
		"slow compute": {func(_ *Report, e *model.Environment) { e.Compute = 10 }, nil, 18, 1},
		// The source was measured in a slow moment: what the least runtime is, is not known.
		"slow source": {func(_ *Report, e *model.Environment) {
			e.SourceThroughput = model.Constant(10)
		}, nil, 0, 0},
		// 200 MB per node and epoch at 20 MB/s by each of two threads, of which one is left.
		"transforms": {func(r *Report, e *model.Environment) {
			e.Preprocess = 20
			r.Preprocessing = &Preprocessing{Threads: 1, Changes: []Change{{To: 2}, {1, 1}}}
		}, nil, 3 * 5, 18. / 15},
		// Nothing is transformed, however long that would take.
		"no transforms": {func(_ *Report, e *model.Environment) {
			e.Preprocess = 1
		}, nil, 8, 18. / 8},
		// The source gives 400 MB; then epochs take 1.8 s of computation.
		"cached": {func(r *Report, _ *model.Environment) {
			r.Classes[0].Capacity = 200e6
		}, nil, 4 + 2*1.8, 18 / 7.6},
		// 400 MB in the first epoch, half as much in the second and third, of which 100 are new.
		"given": {func(r *Report, _ *model.Environment) {
			r.Classes[0].Capacity = 500e6
			for e := range 2 {
				r.Ranks[0].Epochs[1+e].Reads = map[string]Amount{"memory": {100, 100e6}}
			}
			r.Demands = []plan.Demand{
				{Bytes: 400e6, New: 400e6},
				{Bytes: 200e6, New: 100e6},
				{Bytes: 200e6, New: 100e6},
			}
		}, nil, 6, 3},
		// Each node reads all 400 MB, and has 100 of them; peers bring 2000 MB/s.
		"whole": {func(r *Report, e *model.Environment) {
			r.Scheme, e.Compute = "whole", 1e6
			for e := range r.Ranks[0].Epochs {
				r.Ranks[0].Epochs[e].Reads = map[string]Amount{"memory": {400, 400e6}}
			}
		}, nil, 8, 18. / 8},
	} {
		r, env := timed(), machine()
		if c.change != nil {
			c.change(r, env)
		}
		r.Complete(nil, 200e6)
		for e, pause := range c.pauses {
			r.Epochs[e].Pause = pause
		}
		r.CompareTime(env)
		if math.Abs(r.TimeBound-c.bound) > 1e-6 || math.Abs(r.TimeShare-c.share) > 1e-6 {
			t.Errorf("%s: at least %v s, %v of that; want %v and %v", name, r.TimeBound, r.TimeShare,
				c.bound, c.share)
		}
	}
}

// TestOverlappingEpochsCountOnce: the runtime is that of the run, and not the sum of its epochs,
// which ranks that do not wait for each other may be in at the same time.
func TestOverlappingEpochsCountOnce(t *testing.T) {
	r := timed()
	r.Complete(nil, 200e6)
	r.Ran = 7
	r.CompareTime(machine())
	if math.Abs(r.TimeShare*r.TimeBound-7) > 1e-6 {
		t.Errorf("the runtime is %v s", r.TimeShare*r.TimeBound)
	}
}

// TestTimeBoundIsReported: in the report and its summary, and in their sentences; without an
// environment there is none.
func TestTimeBoundIsReported(t *testing.T) {
	r := timed()
	r.Complete(nil, 200e6)
	for _, env := range []*model.Environment{nil, {}} {
		r.CompareTime(env)
		text, err := json.Marshal(r)
		if err != nil || strings.Contains(string(text), "time_bound") ||
			strings.Contains(r.Sentence, "least possible on this machine") {
			t.Errorf("without an environment: %v, %s, %s", err, text, r.Sentence)
		}
	}
	r.CompareTime(machine())
	for _, v := range []any{r, r.Summary()} {
		text, err := json.Marshal(v)
		if err != nil || !strings.Contains(string(text), `"time_bound_seconds":8,`) ||
			!strings.Contains(string(text), `"share_of_time_bound":2.25,`) {
			t.Errorf("%v: %s", err, text)
		}
	}
	want := "The runtime was 2.25 times the least possible on this machine, 8.000 s."
	c := r.Summary()
	if all := c.Over(c.Nodes); !strings.Contains(r.Sentence, want) ||
		!strings.Contains(c.Sentence, want) || !strings.Contains(all.Sentence, want) {
		t.Errorf("%s\n%s\n%s", r.Sentence, c.Sentence, all.Sentence)
	}
	empty := &Report{Settings: Settings{Nodes: 1}}
	empty.Complete(nil, 0)
	if empty.CompareTime(machine()); empty.TimeBound != 0 {
		t.Errorf("nothing was read, and takes %v s", empty.TimeBound)
	}
}

// TestClusterHasTheLargestBound, whichever node asks. The second node paused for 5 s before
// the last epoch, so that its bound is larger.
func TestClusterHasTheLargestBound(t *testing.T) {
	var reports []*ClusterReport
	var nodes []NodeReport
	for n := range 2 {
		r := timed()
		r.Node = n
		r.Complete(nil, 200e6)
		r.Epochs[2].Pause = 5 * float64(n)
		r.CompareTime(machine())
		c := r.Summary()
		reports, nodes = append(reports, c), append(nodes, c.Nodes[0])
	}
	least := reports[1].TimeBound
	if least <= reports[0].TimeBound {
		t.Fatalf("the bounds are %v and %v s", reports[0].TimeBound, least)
	}
	for n, c := range reports {
		all := c.Over(nodes)
		if all.TimeBound != least || math.Abs(all.TimeShare-23/least) > 1e-6 {
			t.Errorf("node %d: %v s, %v of that; want %v", n, all.TimeBound, all.TimeShare, least)
		}
		want := " times the least possible on these nodes, "
		if !strings.Contains(all.Sentence, want) {
			t.Errorf("node %d: %q", n, all.Sentence)
		}
	}
}

// TestGivenNumbersThatAreNotTrue: a run that is faster than they allow contradicts them, unless its
// caches held samples at first.
func TestGivenNumbersThatAreNotTrue(t *testing.T) {
	run := func(change func(*Report)) string {
		r, env := timed(), machine()
		env.SourceThroughput = model.Constant(1e-6)
		known := model.GivenRate(1e-6, 0)
		r.Known = &model.Node{Source: known}
		change(r)
		r.Complete(nil, 200e6)
		r.CompareTime(env)
		return r.Sentence
	}
	const contradiction = "what the configuration gives of the machine (source) it would be at least"
	if got := run(func(*Report) {}); !strings.Contains(got, contradiction) ||
		strings.Contains(got, "0.00 times") {
		t.Error(got)
	}
	if got := run(func(r *Report) { r.Known.Source.Origin = model.Measured }); strings.Contains(
		got, contradiction) {
		t.Errorf("nothing was given: %s", got)
	}
	if got := run(func(r *Report) { r.Classes[0].Held.Bytes = 1 }); strings.Contains(got,
		contradiction) || !strings.Contains(got, "if caches are empty at first") {
		t.Errorf("warm caches: %s", got)
	}
}
