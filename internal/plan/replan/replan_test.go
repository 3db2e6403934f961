package replan

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
	"github.com/hdmlp/hdmlp/internal/plan/policytest"
)

const (
	samples = 400
	bytes   = 100_000 // of a sample; 40 MB in all
)

// machine is what is known of a job's nodes: rates in MB/s.
type machine struct{ network, class, source, compute float64 }

// env returns the environment of a job whose nodes have one class, with 4 threads and without
// latencies.
func (m machine) env() *model.Environment {
	constant := model.Constant
	return &model.Environment{
		Compute: m.compute, Preprocess: 1e6, PeerBandwidth: m.network, SourceBandwidth: 1e6,
		SourceThroughput: constant(m.source),
		Classes: []model.Class{
			{Threads: 4, Read: constant(1e6), Write: constant(1e6), Capacity: 1},
			{Threads: 4, Read: constant(m.class), Write: constant(m.class), Capacity: 40},
		},
	}
}

// question asks whether a job of 30 epochs, which planned for one machine, or guessed, is to follow
// another plan from epoch 2 on, on another machine.
func question(t interface{ Fatal(...any) }, nodes int, share float64, planned *machine,
	now machine,
) Question {
	in := plan.Input{
		Stream: policytest.Stream(t, access.Spec{
			Samples: samples, Seed: 3, Epochs: 30, WorldSize: nodes, GlobalBatch: 10 * nodes,
			Scheme: access.Uniform, Tail: access.Keep,
		}),
		Size:  func(int) int64 { return bytes },
		Nodes: policytest.Nodes(nodes, int64(share*samples*bytes)),
	}
	if planned != nil {
		in.Env = planned.env()
	}
	q := Question{Policy: policies.Cooperative{}, Transformers: make([]int, nodes)}
	q.Plan = policytest.Plan(t, q.Policy, in)
	q.Input, q.Settled = in, true
	q.Input.From, q.Input.Env = 2, now.env()
	return q
}

func TestDecisions(t *testing.T) {
	const never = 1e6 // compute that waits for data whatever the plan
	slowDisk := machine{100, 40, 400, never}
	fastLink := machine{1000, 100, 50, never}
	for name, c := range map[string]struct {
		nodes   int
		share   float64  // of the dataset that a node's class can hold
		planned *machine // nil: guesses
		now     machine
		change  func(*Question)
		why     string // "": adopted
		most    int64  // bytes to move
		spared  int64  // bytes of the source, if that is why
	}{
		"the source is slower than it was": {
			nodes: 1, share: 1, planned: &slowDisk, now: machine{100, 40, 10, never},
			most: 36_400_000, // the class had 40/440 of the dataset
		},
		"links are slower than they were": {
			nodes: 2, share: 1, planned: &fastLink, now: machine{10, 100, 10, never},
			most: 40_000_000, // second copies
		},
		"a node's memory was given back": {
			nodes: 2, share: 0.6, planned: &fastLink, now: machine{1000, 100, 10, never},
			change: func(q *Question) { q.Input.Nodes[1].Capacity = []int64{0} },
			most:   24_000_000, // what the other node holds
		},
		"all nodes hold the same": {
			nodes: 2, share: 0.5, planned: &fastLink, now: fastLink, change: same, most: 20_000_000,
		},
		"all nodes hold the same, and what is measured has not settled": {
			nodes: 2, share: 0.5, planned: &fastLink, now: fastLink,
			change: func(q *Question) {
				same(q)
				q.Settled = false
			}, why: Equal,
		},
		"nothing has changed": {
			nodes: 2, share: 0.3, planned: &fastLink, now: fastLink, why: Equal,
		},
		"measured as it was guessed": {
			nodes: 2, share: 0.3, now: machine{1000, 5000, 50, never}, why: Equal,
		},
		"noise of a few per cent": {
			nodes: 2, share: 0.3, planned: &fastLink, now: machine{970, 103, 49, never}, why: Equal,
		},
		"compute limits": {
			nodes: 1, share: 1, planned: &slowDisk, now: machine{100, 40, 400, 5},
			change: func(q *Question) { q.Took = 8 }, most: 36_400_000, spared: 36_400_000,
		},
		"compute limits, and what epochs take is not known": {
			nodes: 1, share: 1, planned: &slowDisk, now: machine{100, 40, 400, 5}, why: Equal,
		},
		"compute limits both nodes": {
			nodes: 2, share: 0.5, planned: &machine{40, 20, 400, never}, now: machine{40, 20, 400, 2},
			change: func(q *Question) { q.Took = 10 }, most: 36_400_000, spared: 36_400_000,
		},
		"compute limits, and epochs have become longer with such a plan before": {
			nodes: 1, share: 1, planned: &slowDisk, now: machine{100, 40, 400, 5},
			change: func(q *Question) { q.Took, q.Failed = 8, Tried{q.Plan, 8} }, why: Equal,
		},
		"compute limits, and the class takes as long to fill as half of the epochs": {
			nodes: 1, share: 1, planned: &slowDisk, now: machine{100, 40, 400, 5},
			change: func(q *Question) {
				q.Took = 8
				q.Input.Env.Classes[1].Write = model.Constant(0.3)
			}, why: Equal,
		},
		"compute limits, and next to nothing is free": {
			nodes: 1, share: 0.094, planned: &slowDisk, now: machine{100, 40, 400, 5},
			change: func(q *Question) { q.Took = 8 }, why: Equal,
		},
		"transforms limit": {
			nodes: 1, share: 1, planned: &slowDisk, now: machine{100, 40, 10, never},
			change: func(q *Question) {
				q.Took = 10
				q.Input.Env.Preprocess = 2
				q.Transformers[0] = 2
			},
			most: 36_400_000, spared: 36_400_000,
		},
		"compute limits, and too few epochs remain": {
			nodes: 1, share: 1, planned: &slowDisk, now: machine{100, 40, 10, 5},
			change: func(q *Question) { q.Input.From = 28 }, why: Costs,
		},
		"compute limits, and nothing is free": {
			nodes: 1, share: 0.09, planned: &slowDisk, now: machine{100, 40, 10, 5},
			change: func(q *Question) { q.Took = 8 }, why: Equal,
		},
		"the source is faster than the class": {
			nodes: 1, share: 1, planned: &slowDisk, now: machine{100, 40, 400, never}, why: Equal,
		},
		"transforms of another job do not": {
			nodes: 1, share: 1, planned: &slowDisk, now: machine{100, 40, 10, never},
			change: func(q *Question) { q.Input.Env.Preprocess = 2 }, most: 36_400_000,
		},
		"the last epochs": {
			nodes: 1, share: 1, planned: &slowDisk, now: machine{100, 40, 10, never},
			change: func(q *Question) { q.Input.From, q.Policy = 28, nil }, why: Costs, // it is not asked
		},
		"the last epochs, in which each node reads the whole dataset": {
			nodes: 4, share: 0.25, planned: &slowDisk, now: machine{100, 1000, 10, never},
			change: func(q *Question) {
				q.Input.From = 28
				whole(t, q)
			}, most: 40_000_000,
		},
		"the last epochs, in which a sample has an owner that has given it back": {
			nodes: 2, share: 1, planned: &machine{10, 1000, 10, never},
			now: machine{1000, 1000, 3, never},
			change: func(q *Question) {
				q.Input.From = 28
				q.Input.Nodes[1].Capacity = []int64{0}
			},
		},
		"after the last epoch": {
			nodes: 1, share: 1, planned: &slowDisk, now: machine{100, 40, 10, never},
			change: func(q *Question) { q.Input.From = 30 }, why: Ended,
		},
		"not measured": {
			nodes: 1, share: 1, planned: &slowDisk, now: slowDisk,
			change: func(q *Question) { q.Input.Env = nil }, why: Unknown,
		},
		"different plans in force": {
			nodes: 2, share: 0.3, planned: &fastLink, now: fastLink,
			change: func(q *Question) { q.Plan = nil },
		},
		"what a class keeps besides is not moved": {
			nodes: 1, share: 1, planned: &slowDisk, now: machine{100, 40, 10, never},
			change: func(q *Question) {
				for k := range int32(samples) {
					q.Input.Nodes[0].Kept = append(q.Input.Nodes[0].Kept, k)
				}
			}, why: Equal,
		},
	} {
		q := question(t, c.nodes, c.share, c.planned, c.now)
		if c.change != nil {
			c.change(&q)
		}
		out, plan, err := Decide(q)
		if err != nil || out.Why != c.why || out.Adopted != (c.why == "") ||
			(plan != nil) != out.Adopted || out.Spared != c.spared {
			t.Errorf("%s: %+v, %v", name, out, err)
		}
		if out.Adopted && q.Plan != nil && (out.Bytes <= 0 && c.most > 0 || out.Bytes > c.most ||
			c.spared == 0 && out.New > 0.9*out.Seconds || out.New > out.Seconds) {
			t.Errorf("%s: %+v; at most %d bytes are to be moved", name, out, c.most)
		}
	}
}

// TestDecisionsByWhatWasMeasured: predictions are compared with what epochs took.
func TestDecisionsByWhatWasMeasured(t *testing.T) {
	const never = 1e6
	slowDisk, slowSource := machine{100, 40, 400, never}, machine{100, 40, 10, never}
	ask := func(change func(*Question)) (plan.Replanning, *plan.Plan, *Question) {
		q := question(t, 1, 1, &slowDisk, slowSource)
		change(&q)
		out, plan, err := Decide(q)
		if err != nil {
			t.Fatal(err)
		}
		return out, plan, &q
	}
	first, _, _ := ask(func(*Question) {}) // 1 s instead of 3.6 s
	other := func(q *Question) *plan.Plan {
		in := q.Input
		in.Env = slowSource.env()
		return policytest.Plan(t, q.Policy, in)
	}
	for name, c := range map[string]struct {
		change func(*Question)
		why    string
		back   bool
	}{
		"as predicted":                   {func(q *Question) { q.Took = first.Seconds }, "", false},
		"it is not as slow as predicted": {func(q *Question) { q.Took = 1.5 * first.New }, "", false},
		"it is as fast as the new plan is to be": {
			func(q *Question) { q.Took = 1.02 * first.New }, "", false, // less is read from the source
		},
		"it is faster than the new plan is to be": {
			func(q *Question) { q.Took = 0.9 * first.New }, Equal, false,
		},
		"something else takes most of the time": {
			func(q *Question) { q.Took = 100 * first.Seconds }, "", false, // likewise
		},
		"it is faster than the one before": {
			func(q *Question) { q.Took, q.Before.Seconds = 2*first.Seconds, 3*first.Seconds }, "", false,
		},
		"it is slower, and the model has learnt why": {
			func(q *Question) { q.Took, q.Before.Seconds = 1.1*first.Seconds, first.Seconds }, "", false,
		},
		"it is slower, and the model does not see it": {
			func(q *Question) { q.Took, q.Before.Seconds = 3*first.Seconds, first.Seconds }, Wrong, false,
		},
		"it is slower, and the one before is known": {func(q *Question) {
			q.Took, q.Before = 3*first.Seconds, Tried{other(q), first.Seconds}
		}, Wrong, true},
		"it is a little slower, and was to be as fast": {func(q *Question) {
			q.Took, q.Before = 1.1*first.Seconds, Tried{other(q), first.Seconds}
			q.SparesReads = true
		}, Wrong, true},
		"it is slower, and returning does not repay": {func(q *Question) {
			q.Took, q.Before = 3*first.Seconds, Tried{other(q), 2.8 * first.Seconds}
			q.Input.From = 29
		}, Wrong, false},
		"another plan failed, and the model does not see why": {
			func(q *Question) { q.Failed = Tried{other(q), 3 * first.New} }, Wrong, false,
		},
		"another plan failed, and the model has learnt why": {
			func(q *Question) { q.Failed = Tried{other(q), first.New} }, "", false,
		},
	} {
		out, plan, q := ask(c.change)
		if out.Why != c.why || out.Adopted != (c.why == "" || c.back) ||
			(plan != nil) != out.Adopted || c.back && plan != q.Before.Plan {
			t.Errorf("%s: %+v", name, out)
		}
		if out.Took != q.Took || out.Before != q.Before.Seconds {
			t.Errorf("%s: the outcome does not say what was measured: %+v", name, out)
		}
	}
}

// whole makes each rank read every sample in every epoch.
func whole(t *testing.T, q *Question) {
	spec := q.Input.Stream.Spec()
	spec.Scheme, spec.GlobalBatch = access.Whole, 10
	q.Input.Stream = policytest.Stream(t, spec)
}

// same makes the plan in force one by which both nodes hold what the first does.
func same(q *Question) {
	planned := *q.Plan
	planned.Nodes = []plan.NodePlan{q.Plan.Nodes[0], q.Plan.Nodes[0]}
	planned.Owner = slices.Clone(planned.Owner)
	for k := range planned.Owner {
		if !slices.Contains(planned.Nodes[0].Classes[0], int32(k)) {
			planned.Owner[k] = none
		}
	}
	q.Plan = &planned
}

// TestHorizon: a stream without an end is planned for as many epochs as Input.Epochs.
func TestHorizon(t *testing.T) {
	for horizon, adopted := range map[int]bool{3: false, 100: true} {
		q := question(t, 1, 1, &machine{100, 40, 400, 1e6}, machine{100, 40, 10, 1e6})
		spec := q.Input.Stream.Spec()
		spec.Epochs = 0
		q.Input.Stream, q.Input.Epochs = policytest.Stream(t, spec), horizon
		if out, _, err := Decide(q); err != nil || out.Adopted != adopted {
			t.Errorf("horizon %d: %+v, %v", horizon, out, err)
		}
	}
}

// TestMovesByHand: half of the dataset, of which the other node holds one half and no node the
// other, takes 10 MB from each of both.
func TestMovesByHand(t *testing.T) {
	q := question(t, 2, 1, nil, machine{network: 5, class: 100, source: 8, compute: 1e6})
	list := func(from, to int32) (ids []int32) {
		for k := from; k < to; k++ {
			ids = append(ids, k)
		}
		return ids
	}
	plan := func(first, second []int32) *plan.Plan {
		p := &plan.Plan{Remote: true, Owner: make([]int32, samples), Nodes: []plan.NodePlan{
			{Classes: [][]int32{first}}, {Classes: [][]int32{second}},
		}}
		for k := 100; k < samples; k++ {
			p.Owner[k] = 1
		}
		return p
	}
	q.Plan, q.mean = plan(list(0, 100), list(100, 200)), q.Input.MeanSize()
	now, err := q.measure(q.Plan)
	if err != nil {
		t.Fatal(err)
	}
	then, err := q.measure(plan(list(0, 200), list(100, 300)))
	if err != nil {
		t.Fatal(err)
	}
	// Node 0 brings 100..199 from node 1, node 1 brings 200..299 from the source, which gives 4 MB/s
	// to each of two nodes.
	moved, seconds := then.holding.move(now.holding)
	if want := 10 / 4.0; moved != 20_000_000 || math.Abs(seconds-want) > 1e-9 {
		t.Errorf("%d bytes in %v s, want 20 MB in %v s", moved, seconds, want)
	}
	// The source gives the half of 20 MB that no node holds: 4 MB/s.
	if want := 10 / 4.0; now.seconds < want*0.9 || now.seconds > want*1.1 {
		t.Errorf("an epoch takes %v s, want about %v s", now.seconds, want)
	}
}

// TestDecisionIsPure: the same question has the same answer, whatever the order in which its parts
// are computed.
func TestDecisionIsPure(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := func(name string) float64 { return rapid.Float64Range(1, 1000).Draw(t, name) }
		planned := machine{rate("b_c"), rate("r"), rate("t"), rate("c")}
		now := machine{rate("b_c"), rate("r"), rate("t"), rate("c")}
		nodes := rapid.IntRange(1, 4).Draw(t, "nodes")
		share := rapid.Float64Range(0, 1.2).Draw(t, "share")
		out, plan, err := Decide(question(t, nodes, share, &planned, now))
		if err != nil {
			t.Fatal(err)
		}
		again, same, _ := Decide(question(t, nodes, share, &planned, now))
		if diff := cmp.Diff(out, again) + cmp.Diff(plan, same); diff != "" {
			t.Fatal(diff)
		}
		if out.New > out.Seconds*(1+1e-9) && out.Adopted {
			t.Fatalf("a slower plan is adopted: %+v", out)
		}
		if plan != nil && plan.Fingerprint() != same.Fingerprint() {
			t.Fatal("the same plan has two fingerprints")
		}
	})
}

func TestDecisionIsCancelled(t *testing.T) {
	q := question(t, 2, 1, &machine{1000, 100, 50, 1e6}, machine{10, 100, 10, 1e6})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	q.Input.Context = ctx
	if _, _, err := Decide(q); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
