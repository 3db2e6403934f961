// Package policytest is the conformance suite for policies: plans are within capacities and the
// same for the same input, owners hold the samples that they own, samples that nodes already hold
// stay, invalid input is refused, planning ends with its context, and the plan agrees with what
// nodes do in the bootstrap window before it.
//
// Jobs are drawn at random (DrawInput) as in the engine: any scheme, parts of the dataset, given
// epochs, several ranks per node, warm caches. For policies that only the simulator supports they
// are as in the simulator: one rank per node and cold caches.
package policytest

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/plan/simulated"
)

// How is how a policy's plans are executed on several nodes. It is the policy's entry in the suite,
// separate from the policy so that neither changes unnoticed.
type How struct {
	// of plan.Plan; Window: it has one
	Prefetch, Remote, ReadOnce, OnRead, Preload, CacheFirst, Demand, Window bool
	// Deals: ranks read the same global batches in another order; Draws: they read others.
	Deals, Draws  bool
	Ideal, Evicts bool // of simulated.Run; Evicts: it has a Cache
	// Parts: samples are assigned to nodes whatever is read.
	Parts bool
}

// Run runs the suite for policy.
func Run(t *testing.T, policy plan.Policy, how How) {
	t.Run("name and properties are valid", func(t *testing.T) { validAbout(t, policy) })
	t.Run("plans are executed as in the entry", func(t *testing.T) { runs(t, policy, how) })
	t.Run("plans fit capacities and owners hold their samples", func(t *testing.T) {
		keeps(t, policy, how)
	})
	t.Run("invalid input is refused", func(t *testing.T) { refuses(t, policy) })
	if policy.About().Engine && !how.Parts {
		t.Run("samples that are read take precedence", func(t *testing.T) {
			prefersRead(t, policy)
		})
	}
	if starter, ok := policy.(plan.Starter); ok {
		t.Run("planning ends with its context", func(t *testing.T) { ends(t, starter) })
		t.Run("a plan leaves samples of the window in place", func(t *testing.T) {
			starts(t, starter)
		})
		t.Run("invalid windows are refused", func(t *testing.T) { refusesWindows(t, starter) })
	}
}

var aName = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

func validAbout(t *testing.T, policy plan.Policy) {
	about := policy.About()
	if !aName.MatchString(plan.Base(policy.Name())) {
		t.Errorf("the name is %q; it must be a word of lower-case letters, digits and _",
			policy.Name())
	}
	if does := about.Does; does == "" || strings.HasSuffix(does, ".") ||
		strings.ContainsAny(does, ";\n") || strings.ToLower(does[:1]) != does[:1] {
		t.Errorf("Does is %q; it must be what follows the name in a sentence", does)
	}
	if about.Line.Colour == 0 || about.Line.Colour > 0xffffff {
		t.Errorf("the line's colour is %#x; it must be 0xRRGGBB", about.Line.Colour)
	}
	if about.Copies == plan.NoCopies && about.Needs != plan.NoClass {
		t.Error("it needs storage classes and plans no copies")
	}
}

// several returns a job of three nodes whose classes are large enough for every policy.
func several(t *testing.T) plan.Input {
	return plan.Input{
		Stream: Stream(t, access.Spec{
			Samples:     60,
			Epochs:      4,
			WorldSize:   3,
			GlobalBatch: 6,
			Tail:        access.Keep,
			Scheme:      access.Uniform,
		}),
		Nodes: Nodes(3, 30), Size: func(int) int64 { return 1 },
	}
}

func runs(t *testing.T, policy plan.Policy, want How) {
	in, err := plan.Ordered(policy, several(t))
	if err != nil {
		t.Fatal(err)
	}
	order := in.Stream.Order()
	p := Plan(t, policy, in)
	run, err := simulated.RunOf(policy, in, p)
	if err != nil {
		t.Fatal(err)
	}
	got := How{
		p.Prefetch, p.Remote, p.ReadOnce, p.OnRead, p.Preload, p.CacheFirst, p.Demand,
		p.Window != nil, order != nil && order.Deal != nil, order != nil && order.Draw != nil,
		run.Ideal, run.Cache != nil, want.Parts,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if (p.Owner != nil) != want.Remote {
		t.Errorf("owners %v, and nodes may read from each other: %v", p.Owner, want.Remote)
	}
	if copies := slices.ContainsFunc(p.Nodes, func(n plan.NodePlan) bool {
		return len(n.Classes[0]) > 0
	}); copies != (policy.About().Copies != plan.NoCopies) {
		t.Errorf("it plans copies: %v, but About has %v", copies, policy.About().Copies)
	}
	if policy.About().Copies == plan.OnePerSample {
		for k, n := range copiesOf(p, 60) {
			if n > 1 {
				t.Errorf("%d nodes hold sample %d, but About has one copy per sample", n, k)
			}
		}
	}
	if !policy.About().Engine && policy.About().Needs != plan.NoClass {
		in.Nodes = Nodes(3, 0, 30)
		no := (*plan.Unsupported)(nil)
		if _, err := policy.Plan(in); errors.As(err,
			&no) != (policy.About().Needs == plan.FirstClass) {
			t.Errorf("without capacity in class 1: %v, but About requires %v", err,
				policy.About().Needs)
		}
		in = several(t)
	}
	if starter, ok := policy.(plan.Starter); ok {
		first, err := starter.First(in, plan.BootstrapWindow{Steps: 5})
		if err != nil {
			t.Fatal(err)
		}
		before := want
		before.Prefetch = first.Prefetch
		before.Remote = first.Remote
		before.ReadOnce = first.ReadOnce
		before.OnRead = first.OnRead
		if diff := cmp.Diff(want, before); diff != "" || (first.Owner != nil) != want.Remote {
			t.Errorf("before there is a plan, owners %v (-want +got):\n%s", first.Owner, diff)
		}
	}
}

// copiesOf counts the copies of each sample.
func copiesOf(p *plan.Plan, samples int) []int {
	count := make([]int, samples)
	for _, node := range p.Nodes {
		for _, class := range node.Classes {
			for _, k := range class {
				count[k]++
			}
		}
	}
	return count
}

// draw draws a job that the policy may have to plan.
func draw(t *rapid.T, policy plan.Policy, how How) plan.Input {
	in := DrawInput(t)
	if policy.About().Engine && !how.Draws && !how.Deals {
		return in
	}
	spec := in.Stream.Spec()
	in.Stream = Stream(t, access.Spec{
		Samples: spec.Samples, Seed: spec.Seed,
		Epochs: rapid.IntRange(1, 4).Draw(t, "epochs to simulate"), WorldSize: spec.WorldSize,
		GlobalBatch: spec.WorldSize * rapid.IntRange(1, 7).Draw(t, "per node"), Tail: access.Keep,
		Scheme: rapid.SampledFrom(schemes).Draw(t, "scheme of the simulator"),
	})
	in.From = 0
	if policy.About().Engine {
		for n := range in.Nodes {
			in.Nodes[n].Held = nil
			in.Nodes[n].Capacity = rapid.SliceOfN(rapid.Int64Range(0, 3000), 1, 3).
				Draw(t, "capacities of a node")
		}
		return in
	}
	in.Nodes = Nodes(spec.WorldSize,
		rapid.SliceOfN(rapid.Int64Range(0, 3000), 1, 3).Draw(t, "capacities")...)
	return in
}

func keeps(t *testing.T, policy plan.Policy, how How) {
	planned, asked := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		asked++
		in, err := plan.Ordered(policy, draw(t, policy, how))
		var p *plan.Plan
		if err == nil {
			p, err = policy.Plan(in)
		}
		if no := (*plan.Unsupported)(nil); errors.As(err, &no) {
			if no.Policy != policy.Name() || no.Reason == "" {
				t.Fatalf("refused: %v", err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		planned++
		if p.Policy != policy.Name() || len(p.Nodes) != len(in.Nodes) {
			t.Fatalf("plan of %q for %d nodes", p.Policy, len(p.Nodes))
		}
		holders := make([][]int, in.Stream.Spec().Samples)
		for n, node := range p.Nodes {
			held := slices.Concat(in.Nodes[n].Held...)
			if len(node.Classes) != len(in.Nodes[n].Capacity) {
				t.Fatalf("node %d has %d classes", n, len(node.Classes))
			}
			for j, class := range node.Classes {
				var sum int64
				for _, k := range class {
					sum += in.Size(int(k))
					if !in.Stream.Has(int(k)) && !slices.Contains(held, k) {
						t.Fatalf("the plan has node %d hold sample %d, which is never read", n, k)
					}
					if slices.Contains(holders[k], n) {
						t.Fatalf("node %d holds sample %d twice", n, k)
					}
					holders[k] = append(holders[k], n)
				}
				if sum > in.Nodes[n].Capacity[j] {
					t.Fatalf("class %d of node %d takes %d bytes of %d", j+1, n, sum,
						in.Nodes[n].Capacity[j])
				}
			}
		}
		for k := range holders {
			switch owner := p.OwnerOf(k); {
			case owner >= 0 && !slices.Contains(holders[k], owner):
				t.Fatalf("node %d owns sample %d, which it does not hold", owner, k)
			case owner < 0 && p.Remote && len(holders[k]) > 0:
				t.Fatalf("sample %d has no owner, but nodes %v hold it", k, holders[k])
			}
		}
		if again := Plan(t, policy, in); !cmp.Equal(p, again) {
			t.Fatalf("the plan differs for the same input: %s", cmp.Diff(p, again))
		}
		if policy.About().Copies == plan.NoCopies {
			return
		}
		for n, node := range in.Nodes {
			for j, held := range node.Held {
				if len(held) > 0 && in.Size(int(held[0])) <= node.Capacity[j] &&
					!slices.Contains(holders[held[0]], n) {
					t.Fatalf("node %d drops sample %d, which it holds", n, held[0])
				}
			}
		}
	})
	if asked >= 100 && planned < asked/20 { // fewer are no evidence
		t.Errorf("it planned only %d of %d jobs", planned, asked)
	}
}

func refuses(t *testing.T, policy plan.Policy) {
	for want, spoil := range map[string]func(*plan.Input){
		"rank 2 is on no node":       func(in *plan.Input) { in.Nodes = in.Nodes[:2] },
		"rank 0 is on nodes 0 and 1": func(in *plan.Input) { in.Nodes[1].Ranks = []int{0} },
		"node 1 has rank 3":          func(in *plan.Input) { in.Nodes[1].Ranks = []int{3} },
		"capacity of -1 bytes": func(in *plan.Input) {
			in.Nodes[0].Capacity = []int64{-1}
		},
		"holds sample 60": func(in *plan.Input) {
			in.Nodes[0].Held = [][]int32{{60}}
		},
		"holds samples in 2 classes": func(in *plan.Input) {
			in.Nodes[0].Held = make([][]int32, 2)
		},
		"node 1 keeps sample 60": func(in *plan.Input) { in.Nodes[1].Kept = []int32{60} },
		"sample 0 has 0 bytes": func(in *plan.Input) {
			in.Size = func(int) int64 { return 0 }
		},
		"epochs [4, 4)":   func(in *plan.Input) { in.From = 4 },
		"0 nodes":         func(in *plan.Input) { in.Nodes = nil },
		"Stream and Size": func(in *plan.Input) { in.Stream = nil },
		"b_c is 0": func(in *plan.Input) {
			in.Env = &model.Environment{}
		},
		"the stream's Epochs is 0": func(in *plan.Input) {
			in.Stream = Stream(t, access.Spec{Samples: 60, WorldSize: 3, GlobalBatch: 6})
		},
	} {
		in := several(t)
		if _, err := policy.Plan(in); err != nil {
			t.Fatal(err)
		}
		spoil(&in)
		if _, err := policy.Plan(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one that says %q", err, want)
		}
	}
}

// prefersRead checks that with given epochs no sample that none of them reads takes capacity in
// which a sample that is read would fit.
func prefersRead(t *testing.T, policy plan.Policy) {
	rapid.Check(t, func(t *rapid.T) {
		f := rapid.IntRange(1, 100).Draw(t, "samples")
		in := plan.Input{Stream: DrawGiven(t, f, 1), Size: func(int) int64 { return 1 }}
		in.Nodes = Nodes(1, rapid.SliceOfN(rapid.Int64Range(0, 60), 1, 3).Draw(t, "capacity")...)
		to, _, err := in.Check()
		if err != nil {
			t.Fatal(err)
		}
		count := in.Stream.Frequencies([]int{0}, 0, to)
		kept := slices.Concat(Plan(t, policy, in).Nodes[0].Classes...)
		var room int
		for _, c := range in.Nodes[0].Capacity {
			room += int(c)
		}
		if policy.About().Copies != plan.NoCopies && len(kept) != min(room, f) {
			t.Fatalf("%d samples are kept, but %d fit", len(kept), room)
		}
		for _, k := range kept {
			if count[k] > 0 {
				continue
			}
			for other, n := range count {
				if n > 0 && !slices.Contains(kept, int32(other)) {
					t.Fatalf("sample %d is kept and not read, %d is read and not kept", k, other)
				}
			}
		}
	})
}

// ends checks that planning returns the error of a cancelled context.
func ends(t *testing.T, policy plan.Starter) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	in := plan.Input{
		Stream: Stream(t, access.Spec{Samples: 2000, Epochs: 20, WorldSize: 3, GlobalBatch: 6}),
		Nodes:  Nodes(3, 300, 100), Size: func(int) int64 { return 1 }, Context: ctx,
	}
	if _, err := policy.Plan(in); !errors.Is(err, context.Canceled) {
		t.Errorf("the plan: %v", err)
	}
	_, err := policy.First(in, plan.BootstrapWindow{Steps: 5})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the plan of the bootstrap window: %v", err)
	}
}
