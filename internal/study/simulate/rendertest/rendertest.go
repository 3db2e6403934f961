// Package rendertest provides reports for the tests of packages that render them.
package rendertest

import (
	"math"
	"strconv"
	"strings"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/study/simulate"
	"github.com/hdmlp/hdmlp/internal/study/simulate/render"
	"github.com/hdmlp/hdmlp/internal/study/simulate/scaling"
)

// result returns a Result with all fields set.
func result(runtime, before float64, source, remote, ram, ssd int64) *simulate.Result {
	amount := func(n int64) simulate.Amount {
		return simulate.Amount{Samples: n, MB: 2.5 * float64(n)}
	}
	return &simulate.Result{
		Supported: true, Runtime: runtime, BeforeTraining: before, Stall: runtime - before - 1500,
		Reads: simulate.Reads{
			Source: amount(source),
			Remote: amount(remote),
			Local:  map[string]simulate.Amount{"1": amount(ram), "2": amount(ssd)},
		},
		SourceTotal: 2.5 * float64(source), ShareOfBound: float64(source) / 1000, SeenPerEpoch: 1,
		Epochs:  []float64{runtime / 2, runtime / 2},
		Batches: []float64{1, 2, 3, 1, 1, 2, 0.5, 0.25},
	}
}

// Sample returns a report with policies of all kinds, including one that cannot run.
func Sample() *render.Report {
	perfect := &simulate.Result{
		Supported: true, Runtime: 1500,
		Reads: simulate.Reads{
			Local: map[string]simulate.Amount{"0": {Samples: 4000, MB: 10000}},
		},
		SeenPerEpoch: 1, Epochs: []float64{750, 750},
		Batches: []float64{0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25},
	}
	sharded := result(1700.25, 123.456, 0, 0, 1000, 3000)
	sharded.SeenPerEpoch = 0.25
	sharded.Shuffle = 0.8125
	sharded.SourceTotal = 10000
	sharded.ShareOfBound = 4
	r := &render.Report{
		Title: "A <small> cluster & its policies", Scenario: "small.toml", Profile: "model",
		Seed: 3, Classes: []string{"staging", "ram", "ssd"},
		Facts: []render.Fact{
			{Name: "Machine", Value: "4 nodes"},
			{Name: "Dataset", Value: strings.Repeat("a word or two ", 12)},
		},
		Points: []render.Point{{Bound: 2500, TimeBound: 1550, Policies: []render.Policy{
			{Name: "perfect", Result: perfect},
			{Name: "naive", Result: result(61234.5, 0, 4000, 0, 0, 0)},
			{Name: "cooperative", Result: result(1600, 0, 1000, 2500, 400, 100)},
			{
				Name: "lbann_dynamic",
				Result: &simulate.Result{
					Reason: "the dataset is larger than the memory of all nodes",
				},
			},
			{Name: "sharded", Result: sharded},
		}}},
	}
	for _, p := range r.Points[0].Policies {
		p.ShareOfTimeBound = p.Runtime / r.Points[0].TimeBound
	}
	return r
}

// Swept returns a report of a sweep over one or two keys.
func Swept(keys int) *render.Report {
	r := Sample()
	base := r.Points[0]
	r.Points = nil
	r.Sweep = []string{"environment.storage_class.ram.capacity", "environment.nodes"}[:keys]
	for i, a := range []string{"0", "10 GB", "20 GB"} {
		for k, b := range []string{"1", "2", "4", "8"} {
			if keys == 1 && k > 0 {
				continue
			}
			p := render.Point{
				Values: []string{a, b}[:keys], Bound: base.Bound,
				TimeBound: base.TimeBound / float64(1+i+k),
			}
			for _, policy := range base.Policies {
				result := *policy.Result
				result.Runtime *= 1 / float64(1+i+k)
				p.Policies = append(p.Policies, render.Policy{Name: policy.Name, Result: &result})
			}
			r.Points = append(r.Points, p)
		}
	}
	return r
}

// Scaled returns a report over numbers of nodes, with the analytical model. One policy runs on two
// nodes or more.
func Scaled() *render.Report {
	r := Sample()
	base := r.Points[0]
	r.Points = nil
	r.Sweep, r.Scaling = []string{"environment.nodes"}, true
	r.Lines = map[string]plan.Line{"mine": {Colour: 0xb5179e}}
	env := model.Environment{
		Compute: 100, Preprocess: 400, PeerBandwidth: 500, SourceBandwidth: 2000,
		SourceThroughput: model.NewCurve(map[int]float64{1: 250, 4: 300}),
		Classes: []model.Class{
			{Capacity: 100, Threads: 2, Read: model.Constant(1e5), Write: model.Constant(1e5)},
			{Capacity: 2500, Threads: 2, Read: model.Constant(1e5), Write: model.Constant(1e5)},
		},
	}
	r.Limit = scaling.LimitOf(&env)
	for _, nodes := range []int{1, 2, 4, 8} {
		p := render.Point{
			Values: []string{strconv.Itoa(nodes)}, Bound: base.Bound,
			TimeBound: base.TimeBound / float64(nodes),
			Model: scaling.Predict(scaling.Job{
				Env: &env, Nodes: nodes, Dataset: 10000, Samples: 4000, Epoch: 10000, GlobalBatch: 256,
				Epochs: 2,
			}),
		}
		for _, policy := range base.Policies {
			result := *policy.Result
			result.Runtime *= math.Pow(float64(nodes), -0.75)
			if policy.Name == "lbann_dynamic" && nodes > 1 {
				result = simulate.Result{Supported: true, Runtime: 3600 / float64(nodes)}
			}
			p.Policies = append(p.Policies, render.Policy{Name: policy.Name, Result: &result})
		}
		p.Policies = append(p.Policies, render.Policy{
			Name: "mine", Result: result(2000/math.Sqrt(float64(nodes)), 0, 4000, 0, 0, 0),
		})
		r.Points = append(r.Points, p)
	}
	return r
}
