package planner

import (
	"context"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
	"github.com/hdmlp/hdmlp/internal/study/simulate"
)

// tiers returns what is known on a node; each node has measured a little differently.
func tiers(node int, origin model.Origin, network, class, source float64) model.Node {
	known := func(mbps float64) model.Known {
		k := model.GivenRate(mbps*(1+0.01*float64(node)), 1e-3)
		k.Origin = origin
		return k
	}
	return model.Node{
		Network: known(network), Source: known(source), Streams: 16,
		Classes: []model.NodeClass{
			{Name: "memory", Read: model.GuessedMemory, Write: model.GuessedMemory},
			{Name: "file", Path: "/d", Read: known(class), Write: known(class)},
		},
	}
}

// reports is a job's nodes, each of which reports what it has measured.
type reports struct {
	node
	all []plan.Node
}

func (r *reports) Capacities(context.Context, plan.Node) ([]plan.Node, error) {
	return r.all, nil
}

// TestEngineAndSimulatorPlanAlike: for the same job and environment, the plan that a node follows
// is the one that is simulated, and all nodes follow the same.
func TestEngineAndSimulatorPlanAlike(t *testing.T) {
	const (
		nodes   = 3
		samples = 300
		bytes   = 100_000
	)
	capacity := []int64{20 * bytes, 40 * bytes}
	spec := access.Spec{
		Samples: samples, Seed: 7, Epochs: 5, WorldSize: nodes, GlobalBatch: 30,
		Scheme: access.Uniform, Tail: access.Keep,
	}
	for name, rates := range map[string][3]float64{
		"fast links": {1000, 400, 100}, "slow links": {10, 400, 100}, "slow disk": {1000, 20, 300},
		"all slow": {5, 20, 300},
	} {
		for _, policy := range []string{"cooperative", "frequency"} {
			var all []plan.Node
			for n := range nodes {
				known := tiers(n, model.Probed, rates[0], rates[1], rates[2])
				all = append(all, plan.Node{
					Ranks: []int{n}, Capacity: capacity, Known: &known,
				})
			}
			stream, err := access.New(spec)
			if err != nil {
				t.Fatal(err)
			}
			var first *Planner
			for n := range nodes {
				r := &reports{all: all}
				p, err := New(t.Context(), Options{
					Local: Local{
						Strategy: Strategy{AtOnce: 1e12}, Me: n, Nodes: r,
						Classes: []Class{{Capacity: capacity[0]}, {Capacity: capacity[1]}},
					},
					Name: policy, Stream: stream,
					Size:   func(int) int64 { return bytes },
					Needed: func(c [][]int32) [][]int32 { return c },
					Use:    r, Read: func(int64) {}, Admit: func(int64) error { return nil },
					Log: slog.New(slog.DiscardHandler),
				})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(p.Close)
				if first == nil {
					first = p
				}
				if diff := cmp.Diff(first.Plan(), p.Plan()); diff != "" {
					t.Fatalf("%s, %s: node %d plans otherwise: %s", name, policy, n, diff)
				}
			}
			if first.Environment() == nil {
				t.Fatalf("%s: planned without an environment", name)
			}
			job := &simulate.Job{
				Env: *first.Environment(), Nodes: nodes, Epochs: spec.Epochs,
				GlobalBatch: spec.GlobalBatch, Scheme: spec.Scheme, Seed: spec.Seed,
			}
			for range samples {
				job.Sizes = append(job.Sizes, bytes/1e6)
			}
			in, err := simulate.Input(job)
			if err != nil {
				t.Fatal(err)
			}
			simulated, err := policies.ByName(policy)
			if err != nil {
				t.Fatal(err)
			}
			plan, err := simulated.Plan(in)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(plan, first.Plan()); diff != "" {
				t.Errorf("%s, %s: (-simulated +engine)\n%s", name, policy, diff)
			}
		}
	}
}

// TestGuessesChangeNoPlan: if a node only guesses a tier, or reports nothing, the job plans without
// an environment.
func TestGuessesChangeNoPlan(t *testing.T) {
	guessed := tiers(0, model.Guessed, 1000, 20, 300)
	measured := tiers(0, model.Measured, 1000, 20, 300)
	for name, c := range map[string]struct {
		known [2]*model.Node
		agree bool
	}{
		"all guess":        {[2]*model.Node{&guessed, &guessed}, false},
		"one says nothing": {[2]*model.Node{&measured, nil}, false},
		"one has measured": {[2]*model.Node{&measured, &guessed}, true},
	} {
		stream, err := access.New(access.Spec{
			Samples: 10, Epochs: 2, WorldSize: 2, GlobalBatch: 2, Scheme: access.Uniform,
			Tail: access.Keep,
		})
		if err != nil {
			t.Fatal(err)
		}
		in := plan.Input{Stream: stream, Size: func(int) int64 { return 1000 }}
		for n, known := range c.known {
			in.Nodes = append(in.Nodes,
				plan.Node{Ranks: []int{n}, Capacity: []int64{1, 2}, Known: known})
		}
		if in.Agree(); (in.Env != nil) != c.agree {
			t.Errorf("%s: %+v", name, in.Env)
		}
	}
}
