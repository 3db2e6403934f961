package placement

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hdmlp/hdmlp/internal/access"
)

// TestHowPlansAreRun: each policy's plan says how it is run, and what nodes do before there is a plan is run in the same way.
func TestHowPlansAreRun(t *testing.T) {
	type run struct{ Prefetch, Remote, ReadOnce, OnRead, Preload, CacheFirst, Demand bool }
	how := func(p *Plan) run {
		return run{p.Prefetch, p.Remote, p.ReadOnce, p.OnRead, p.Preload, p.CacheFirst, p.Demand}
	}
	in := Input{
		Stream: stream(t, access.Spec{Samples: 60, Epochs: 4, WorldSize: 3, GlobalBatch: 6, Tail: access.Keep, Scheme: access.Uniform}),
		Nodes:  nodes(3, 30), Size: func(int) int64 { return 1 },
	}
	for name, want := range map[string]run{
		"cooperative":          {Prefetch: true, Remote: true, ReadOnce: true},
		"frequency":            {Prefetch: true, Remote: true},
		"partitioned":          {Prefetch: true, Remote: true, OnRead: true, CacheFirst: true},
		"minio":                {Prefetch: true, CacheFirst: true},
		"staging":              {Prefetch: true},
		"naive":                {},
		"perfect":              {Prefetch: true},
		"deepio_ordered":       {Prefetch: true, Remote: true, Preload: true, CacheFirst: true, Demand: true},
		"deepio_opportunistic": {Prefetch: true, Remote: true, Preload: true, CacheFirst: true, Demand: true},
		"lbann_dynamic":        {Prefetch: true, Remote: true, ReadOnce: true, OnRead: true, CacheFirst: true},
		"lbann_preloading":     {Prefetch: true, Remote: true, Preload: true, CacheFirst: true},
		"sharded":              {Prefetch: true, Preload: true, CacheFirst: true},
		"locality":             {Prefetch: true, Remote: true, Preload: true, CacheFirst: true},
	} {
		policy, err := ForSimulator(name)
		if err != nil {
			t.Fatal(err)
		}
		p := plan(t, policy, in)
		if diff := cmp.Diff(want, how(p)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if (p.Owner != nil) != want.Remote {
			t.Errorf("%s: owners %v", name, p.Owner)
		}
		if starter, ok := policy.(Starter); ok {
			first, err := starter.First(in, Lead{Steps: 5})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, how(first)); diff != "" {
				t.Errorf("%s, before there is a plan (-want +got):\n%s", name, diff)
			}
		}
	}
}

// TestFrequencyOwnersAreTheFastest: the owner of a sample is a node that holds it in the fastest class; nodes that tie take turns.
func TestFrequencyOwnersAreTheFastest(t *testing.T) {
	const f, n = 900, 3
	in := Input{
		Stream: stream(t, access.Spec{Samples: f, Seed: 3, Epochs: 12, WorldSize: n, GlobalBatch: 30}),
		Nodes:  nodes(n, 200, 500), Size: func(int) int64 { return 1 },
	}
	p := plan(t, Frequency{}, in)
	class := func(node, k int) int {
		return slices.IndexFunc(p.Nodes[node].Classes, func(ids []int32) bool { return slices.Contains(ids, int32(k)) })
	}
	owned, ties := make([]int, n), 0
	for k := range f {
		var best []int
		for node := range n {
			switch j := class(node, k); {
			case j < 0:
			case len(best) == 0 || j < class(best[0], k):
				best = []int{node}
			case j == class(best[0], k):
				best = append(best, node)
			}
		}
		owner := p.OwnerOf(k)
		if len(best) == 0 != (owner < 0) || len(best) > 0 && !slices.Contains(best, owner) {
			t.Fatalf("node %d answers for sample %d; nodes %v have it in the fastest class", owner, k, best)
		}
		if len(best) == n {
			owned[owner]++
			ties++
		}
	}
	for node, k := range owned {
		if k < ties/n/2 {
			t.Errorf("of %d samples that all hold alike, node %d answers for %d", ties, node, k)
		}
	}
}

// TestResumeFromTheFirstLead: the plan begins with the earliest epoch in which any node begins.
func TestResumeFromTheFirstLead(t *testing.T) {
	in := Input{
		Stream: stream(t, access.Spec{Samples: 60, Epochs: 4, WorldSize: 3, GlobalBatch: 6}),
		Nodes:  nodes(3, 15), Size: func(int) int64 { return 1 },
	}
	for _, epochs := range [][]int{{2, 1, 3}, {1, 2, 3}, {3, 2, 1}, {1, 1, 1}} {
		var leads []Lead
		for _, e := range epochs {
			leads = append(leads, Lead{Epoch: e, Steps: 2})
		}
		if resumed, err := Resume(Cooperative{}, in, leads); err != nil || resumed.From != 1 {
			t.Errorf("leads from epochs %v: the plan is for those from %d on, %v", epochs, resumed.From, err)
		}
	}
}

// TestMemory: the memory expected of a plan is that of the table of reads, and so much for each sample.
func TestMemory(t *testing.T) {
	const samples, perSample = 500, 88
	for _, c := range []struct{ nodes, epochs, horizon, from int }{{1, 4, 0, 0}, {2, 90, 0, 0}, {4, 90, 0, 70}, {9, 0, 30, 0}, {200, 12, 0, 3}} {
		in := Input{
			Stream: stream(t, access.Spec{Samples: samples, Epochs: c.epochs, WorldSize: c.nodes, GlobalBatch: c.nodes}),
			Nodes:  nodes(c.nodes, 3), Size: func(int) int64 { return 1 }, Epochs: c.horizon, From: c.from,
		}
		b, err := newBuilder(&in)
		if err != nil {
			t.Fatal(err)
		}
		r := newReads(b)
		r.load(0)
		if got, want := Memory(in), int64(8*len(r.table)+samples*perSample); got != want {
			t.Errorf("%+v: %d bytes, want %d", c, got, want)
		}
	}
}
