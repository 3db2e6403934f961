package policytest

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
)

var schemes = []access.Scheme{access.Strided, access.Uniform, access.Whole, access.Imbalanced}

// DrawGiven draws a stream of given epochs for this many ranks. The first epoch and some others are
// known.
func DrawGiven(t *rapid.T, f, ranks int) *access.Stream {
	epochs := rapid.IntRange(1, 8).Draw(t, "epochs")
	var s *access.Stream
	var err error
	if ranks == 1 {
		s, err = access.NewGiven(f,
			rapid.SliceOfN(rapid.Int32Range(1, 30), 1, 8).Draw(t, "batches"), epochs)
	} else {
		s, err = access.NewGivenShared(f, ranks, rapid.IntRange(1, 10).Draw(t, "batch"),
			rapid.IntRange(1, 40).Draw(t, "entries"), epochs)
	}
	if err != nil {
		t.Fatal(err)
	}
	for e := range epochs {
		if e > 0 && rapid.Bool().Draw(t, "not yet") {
			continue
		}
		if err := s.Give(e, rapid.SliceOfN(rapid.Int32Range(0, int32(f-1)), s.Delivered(),
			s.Delivered()).Draw(t, "order")); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// DrawInput draws a small job with any scheme, a part of the dataset or given epochs, and nodes of
// different sizes, some of them warm.
func DrawInput(t *rapid.T) plan.Input {
	f := rapid.IntRange(1, 200).Draw(t, "samples")
	w := rapid.IntRange(1, 8).Draw(t, "ranks")
	given := rapid.IntRange(0, 3).Draw(t, "given") == 0
	spec := access.Spec{
		Samples: f, Seed: rapid.Uint64().Draw(t, "seed"),
		Epochs: rapid.IntRange(1, 8).Draw(t, "epochs"), WorldSize: w,
		GlobalBatch: rapid.IntRange(1, 50).Draw(t, "batch"),
		Shuffle: rapid.SampledFrom([]access.Shuffle{
			access.Torch, access.Feistel,
			access.Sequential,
		}).Draw(t, "shuffle"),
		Scheme: rapid.SampledFrom(schemes).Draw(t, "scheme"),
		Tail:   rapid.SampledFrom([]access.Tail{access.Pad, access.Keep}).Draw(t, "tail"),
	}
	n := f
	if rapid.Bool().Draw(t, "a part") {
		spec.Subset = rapid.SliceOfN(rapid.Int32Range(0, int32(f-1)), 1, 250).Draw(t, "subset")
		n = len(spec.Subset)
	}
	if spec.Subset == nil && spec.Shuffle != access.Torch && rapid.Bool().Draw(t, "mixed") {
		spec.Mixture = drawMixture(t, f)
		n = spec.Mixture.Entries
	}
	spec.DropLast = n >= spec.GlobalBatch && rapid.Bool().Draw(t, "drop last")
	sizes := rapid.SliceOfN(rapid.Int64Range(1, 50), f, f).Draw(t, "sizes")
	in := plan.Input{Size: func(id int) int64 { return sizes[id] }}
	if given {
		in.Stream = DrawGiven(t, f, w)
		in.From = rapid.SampledFrom(in.Stream.GivenEpochs()).Draw(t, "from")
	} else {
		in.Stream, in.From = Stream(t, spec), rapid.IntRange(0, spec.Epochs-1).Draw(t, "from")
	}
	for r := range w {
		if r == 0 || rapid.Bool().Draw(t, "another node") {
			in.Nodes = append(in.Nodes,
				plan.Node{
					Capacity: rapid.SliceOfN(rapid.Int64Range(0, 1500), 0, 3).Draw(t, "capacity"),
				})
		}
		last := &in.Nodes[len(in.Nodes)-1]
		last.Ranks = append(last.Ranks, r)
	}
	for n := range in.Nodes {
		for range in.Nodes[n].Capacity {
			in.Nodes[n].Held = append(in.Nodes[n].Held,
				rapid.SliceOfN(rapid.Int32Range(0, int32(f-1)), 0, 5).Draw(t, "held"))
		}
	}
	return in
}

// drawMixture draws a mixture of up to three datasets with f samples in all.
func drawMixture(t *rapid.T, f int) *access.Mixture {
	m := &access.Mixture{Entries: rapid.IntRange(1, 250).Draw(t, "entries")}
	for rest := f; rest > 0; {
		n := rest
		if len(m.Sizes) < 2 {
			n = rapid.IntRange(1, rest).Draw(t, "dataset")
		}
		m.Sizes, rest = append(m.Sizes, n), rest-n
	}
	for range rapid.IntRange(1, 3).Draw(t, "rows of weights") {
		row := rapid.SliceOfN(rapid.Uint64Range(0, 9), len(m.Sizes), len(m.Sizes)).Draw(t, "weights")
		row[0]++
		m.Weights = append(m.Weights, row)
	}
	return m
}

// Stream is access.New for a test.
func Stream(t interface{ Fatal(...any) }, spec access.Spec) *access.Stream {
	s, err := access.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Nodes returns n nodes, each with one rank and the same classes.
func Nodes(n int, capacity ...int64) []plan.Node {
	list := make([]plan.Node, n)
	for i := range list {
		list[i] = plan.Node{Ranks: []int{i}, Capacity: capacity}
	}
	return list
}

// Plan returns the policy's plan for the input.
func Plan(t interface{ Fatal(...any) }, p plan.Policy, in plan.Input) *plan.Plan {
	made, err := p.Plan(in)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// SimulatorInput draws a job as in the simulator, with one rank per node.
func SimulatorInput(t *testing.T, seed uint64, share float64) plan.Input {
	r := rand.New(rand.NewPCG(seed, 2))
	n, f := 1+r.IntN(6), 20+r.IntN(200)
	in := plan.Input{
		Stream: Stream(t, access.Spec{
			Samples: f, Seed: seed, Epochs: 1 + r.IntN(4), WorldSize: n,
			GlobalBatch: n * (1 + r.IntN(7)), Tail: access.Keep,
			Scheme: []access.Scheme{access.Strided, access.Uniform, access.Imbalanced}[r.IntN(3)],
		}),
		Size: func(k int) int64 { return 50 + int64(k*7919%100) },
	}
	in.Nodes = Nodes(n, int64(share*70*float64(f)/float64(n)),
		int64(share*30*float64(f)/float64(n)))
	return in
}
