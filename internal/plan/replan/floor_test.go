package replan

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
	"github.com/hdmlp/hdmlp/internal/plan/policytest"
)

// drawMachine draws a machine with rates of very different sizes.
func drawMachine(t *rapid.T, of string) machine {
	rate := rapid.SampledFrom([]float64{3, 20, 100, 1000, 10000})
	return machine{
		network: rate.Draw(t, of+" network"), class: rate.Draw(t, of+" class"),
		source: rate.Draw(t, of+" source"), compute: rate.Draw(t, of+" compute"),
	}
}

// TestNoPlanTakesLessThanTheFloor checks that epochs take at least as long with the plans of
// several policies, made for several machines, as with any plan by noPlanTakesLess.
func TestNoPlanTakesLessThanTheFloor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := rapid.SampledFrom([]int{1, 2, 3, 4, 8}).Draw(t, "nodes")
		planned := drawMachine(t, "planned")
		share := rapid.SampledFrom([]float64{0.1, 0.25, 0.5, 1}).Draw(t, "share")
		q := question(t, nodes, share, &planned, drawMachine(t, "now"))
		q.Input.From = rapid.IntRange(1, 29).Draw(t, "from")
		q.mean = q.Input.MeanSize()
		for _, policy := range []plan.Policy{
			policies.Cooperative{}, policies.Frequency{}, policies.MinIO{},
		} {
			for _, in := range []plan.Input{q.Input, q.filling()} {
				is, err := q.measure(policytest.Plan(t, policy, in))
				if err != nil {
					t.Fatal(err)
				}
				if spared, err := q.noPlanTakesLess(is, 1.001*is.seconds); spared || err != nil {
					t.Errorf("%s: %.4f s, at least %.4f s", policy.Name(), is.seconds, q.floor(is, 1))
				}
			}
		}
	})
}

// TestOwnable checks the share of reads that nodes can hold themselves, by hand: of one epoch, each
// node holds what it reads, as far as it fits; of many, hardly more than what all hold of the
// dataset, over their number.
func TestOwnable(t *testing.T) {
	m := machine{100, 100, 100, 1e6}
	for _, c := range []struct {
		nodes, from int
		share, want float64
	}{
		{4, 29, 0.25, 1},
		{4, 29, 0.125, 0.5},
		{2, 2, 1, 1},
		{2, 28, 0.5, 0.75}, // half of the samples are read twice by one node
		{2, 2, 0.5, 0.575}, // 28 reads of a sample: a node has 16.1 of them
		{1, 2, 0.1, 1},
	} {
		q := question(t, c.nodes, c.share, &m, m)
		q.Input.From = c.from
		got, err := ownable(&q.Input, q.end())
		if err != nil || math.Abs(got-c.want) > 0.02 {
			t.Errorf("%+v: %.3f, %v", c, got, err)
		}
	}
}

// TestOwnableOfManySamples checks that the share estimated from a part of the samples is about that
// of all.
func TestOwnableOfManySamples(t *testing.T) {
	const samples, nodes = 1 << 20, 8 // twice as many pairs as are counted
	in := plan.Input{
		Stream: policytest.Stream(t, access.Spec{
			Samples: samples, Seed: 3, Epochs: 4, WorldSize: nodes, GlobalBatch: 1024,
			Scheme: access.Uniform, Tail: access.Keep,
		}),
		Size:  func(int) int64 { return bytes },
		Nodes: policytest.Nodes(nodes, samples*bytes/nodes),
	}
	// By hand, over the 4,096 equally likely ways in which eight nodes read a sample four times: the
	// pairs that are read most often, as many as there are samples.
	const want = 0.422
	got, err := ownable(&in, 4)
	if err != nil || math.Abs(got-want) > 0.02 {
		t.Errorf("%.3f, want %.3f; %v", got, want, err)
	}
}

// TestNoPlanRepaysInFewEpochs checks that an epoch spares at most what moving takes, in the mean of
// all nodes: then no plan spares repayFactor times of that in so many epochs.
func TestNoPlanRepaysInFewEpochs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := rapid.SampledFrom([]int{1, 2, 4}).Draw(t, "nodes")
		planned := drawMachine(t, "planned")
		share := rapid.SampledFrom([]float64{0.1, 0.25, 0.5, 1}).Draw(t, "share")
		q := question(t, nodes, share, &planned, drawMachine(t, "now"))
		q.Input.From = q.end() - rapid.IntRange(1, repayFactor).Draw(t, "left")
		q.mean = q.Input.MeanSize()
		mean := func(plan *plan.Plan) (float64, *holding) { // seconds of an epoch on a mean node
			m, err := q.measure(plan)
			if err != nil {
				t.Fatal(err)
			}
			all, err := m.holding.served(q.Input.From, q.end())
			if err != nil {
				t.Fatal(err)
			}
			hits := model.Hits{Own: make([]float64, 1), All: make([]float64, 1)}
			for _, s := range all {
				hits.Own[0] += s.Own[0] / float64(nodes)
				hits.All[0] += s.All[0] / float64(nodes)
				hits.Cached += s.Cached / float64(nodes)
			}
			return q.epoch(m.reads, 0, &hits), m.holding
		}
		now, from := mean(q.Plan)
		for _, in := range []plan.Input{q.Input, q.filling()} {
			then, to := mean(policytest.Plan(t, q.Policy, in))
			if _, move := to.move(from); now-then > 1.001*move {
				t.Errorf("%.4f s instead of %.4f s, by a move of %.4f s", then, now, move)
			}
		}
	})
}
