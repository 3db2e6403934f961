package policies

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/plan/policytest"
)

// measure replays the stream against a plan whose classes are full.
func measure(in plan.Input, p *plan.Plan) (covered, local float64) {
	spec := in.Stream.Spec()
	anywhere := make([]bool, spec.Samples)
	held := 0
	total, hits := 0, 0
	for n, node := range p.Nodes {
		here := make([]bool, spec.Samples)
		for _, class := range node.Classes {
			for _, k := range class {
				here[k] = true
				if !anywhere[k] {
					anywhere[k] = true
					held++
				}
			}
		}
		for k, r := range in.Stream.Frequencies(in.Nodes[n].Ranks, in.From, spec.Epochs) {
			total += int(r)
			if here[k] {
				hits += int(r)
			}
		}
	}
	return float64(held) / float64(spec.Samples), float64(hits) / float64(total)
}

// TestCooperativeCoversMoreThanFrequency reproduces the measurements behind Cooperative: with
// caches that together are as large as the dataset, frequency leaves a part of it uncached,
// cooperative nothing, with about the same local hits.
func TestCooperativeCoversMoreThanFrequency(t *testing.T) {
	// One percentage point: the measurements had other seeds and broke ties between equally
	// frequent samples differently.
	const f, tolerance = 20000, 0.01
	for _, row := range []struct {
		n, epochs                                    int
		frequency, cooperative, localFreq, localCoop float64
	}{
		{4, 10, 0.839, 1, 0.430, 0.419},
		{4, 90, 0.817, 1, 0.309, 0.305},
		{8, 90, 0.748, 1, 0.184, 0.180},
		{32, 90, 0.681, 1, 0.078, 0.075},
	} {
		in := plan.Input{
			Stream: policytest.Stream(t,
				access.Spec{
					Samples:     f,
					Seed:        7,
					Epochs:      row.epochs,
					WorldSize:   row.n,
					GlobalBatch: 160,
					Shuffle:     access.Feistel,
				}),
			Nodes: policytest.Nodes(row.n, int64(f/row.n)*1000),
			Size:  func(int) int64 { return 1000 },
		}
		for _, c := range []struct {
			policy         plan.Policy
			covered, local float64
		}{
			{Frequency{}, row.frequency, row.localFreq},
			{Cooperative{}, row.cooperative, row.localCoop},
		} {
			covered, local := measure(in, policytest.Plan(t, c.policy, in))
			t.Logf("N=%d E=%d %s: covered %.1f %%, local hits %.1f %%", row.n, row.epochs,
				c.policy.Name(), 100*covered, 100*local)
			if math.Abs(covered-c.covered) > tolerance {
				t.Errorf("N=%d E=%d %s covers %.4f of the dataset, want %.3f", row.n, row.epochs,
					c.policy.Name(), covered, c.covered)
			}
			if math.Abs(local-c.local) > tolerance {
				t.Errorf("N=%d E=%d %s has %.4f local hits, want %.3f", row.n, row.epochs,
					c.policy.Name(), local, c.local)
			}
		}
	}
}

// TestWarmRestartKeepsThePlan: a plan keeps what is held and adds no copy of it elsewhere.
func TestWarmRestartKeepsThePlan(t *testing.T) {
	in := plan.Input{
		Stream: policytest.Stream(t,
			access.Spec{Samples: 1000, Seed: 3, Epochs: 9, WorldSize: 4, GlobalBatch: 40}),
		Nodes: policytest.Nodes(4, 100, 150), Size: func(int) int64 { return 1 },
	}
	cold := policytest.Plan(t, Cooperative{}, in)
	for n := range in.Nodes {
		in.Nodes[n].Held = cold.Nodes[n].Classes
	}
	if diff := cmp.Diff(cold, policytest.Plan(t, Cooperative{}, in)); diff != "" {
		t.Errorf("a restart changes the plan (-cold +warm):\n%s", diff)
	}
}

// TestSpareCapacityHoldsFurtherCopies: caches larger than the dataset hold further copies, unless
// peers are as fast as own classes.
func TestSpareCapacityHoldsFurtherCopies(t *testing.T) {
	in := plan.Input{
		Stream: policytest.Stream(t,
			access.Spec{Samples: 1000, Seed: 3, Epochs: 20, WorldSize: 2, GlobalBatch: 40}),
		Nodes: policytest.Nodes(2, 700), Size: func(int) int64 { return 1 },
	}
	count := func() (n int) {
		for _, node := range policytest.Plan(t, Cooperative{}, in).Nodes {
			n += len(node.Classes[0])
		}
		return n
	}
	if n := count(); n != 1400 {
		t.Errorf("%d copies, want the caches full: 1400", n)
	}
	slow := model.Class{
		Capacity: 1,
		Threads:  1,
		Read:     model.Constant(80),
		Write:    model.Constant(80),
	}
	in.Env = &model.Environment{
		Compute: 1, Preprocess: 1, PeerBandwidth: 1e4, SourceBandwidth: 10,
		SourceThroughput: model.Constant(10),
		Classes:          []model.Class{slow, slow},
	}
	if n := count(); n != 1000 {
		t.Errorf("%d copies, want one of each where a peer's disk is as fast as one's own", n)
	}
}

// TestSamplesOfLaterEpochsAreSpread: if the dataset fits into the caches of the nodes together,
// each sample is kept by one node, even if only a future epoch may need it.
func TestSamplesOfLaterEpochsAreSpread(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, n := rapid.IntRange(20, 200).Draw(t, "samples"), rapid.IntRange(2, 5).Draw(t, "nodes")
		s, err := access.NewGivenShared(f, n, 3, rapid.IntRange(1, f/n).Draw(t, "entries"), 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Give(0, rapid.SliceOfN(rapid.Int32Range(0, int32(f-1)), s.Delivered(),
			s.Delivered()).Draw(t, "order")); err != nil {
			t.Fatal(err)
		}
		room := (f + n - 1) / n
		in := plan.Input{
			Stream: s,
			Epochs: 9,
			Size:   func(int) int64 { return 1 },
			Nodes:  policytest.Nodes(n, int64(room)),
		}
		for _, policy := range []plan.Policy{Cooperative{}, Partitioned{}} {
			p := policytest.Plan(t, policy, in)
			for k := range f {
				if p.OwnerOf(k) < 0 {
					t.Fatalf("%s: no node keeps sample %d of %d bytes, although %d are free",
						policy.Name(), k, f, n*room)
				}
			}
		}
	})
}

// TestNodesOwnWhatTheyKeep: a sample that a node has in Kept gets its owner from those nodes, and
// is not read from the source, in the plan and in the bootstrap window.
func TestNodesOwnWhatTheyKeep(t *testing.T) {
	const samples, n = 400, 3
	in := plan.Input{
		Stream: policytest.Stream(t,
			access.Spec{
				Samples:     samples,
				Seed:        7,
				Epochs:      4,
				WorldSize:   n,
				GlobalBatch: 4 * n,
				Shuffle:     access.Torch,
				Scheme:      access.Strided,
			}),
		Nodes: policytest.Nodes(n, 50, samples),
		Size:  func(int) int64 { return 1 },
	}
	keeps := make([][]bool, n)
	for i := range keeps {
		keeps[i] = make([]bool, samples)
	}
	for k := range int32(samples) {
		for _, i := range [][]int{{0}, {1}, {0, 1}, {}}[k%4] {
			keeps[i][k] = true
			in.Nodes[i].Kept = append(in.Nodes[i].Kept, k)
		}
	}
	window, err := Cooperative{}.First(in, plan.BootstrapWindow{Steps: 20})
	if err != nil {
		t.Fatal(err)
	}
	full := policytest.Plan(t, Cooperative{}, in)
	owned := make([]int, n)
	for k := range samples {
		for name, p := range map[string]*plan.Plan{"plan": full, "window": window} {
			if o := p.OwnerOf(k); k%4 != 3 && (o < 0 || !keeps[o][k]) {
				t.Errorf("%s: node %d owns sample %d, but does not keep it", name, o, k)
			}
		}
		if o := full.OwnerOf(k); o < 0 ||
			!slices.ContainsFunc(full.Nodes[o].Classes, func(ids []int32) bool {
				return slices.Contains(ids, int32(k))
			}) {
			t.Errorf("sample %d: node %d owns it, but the plan does not place it there", k, o)
		} else if k%4 == 2 {
			owned[o]++
		}
	}
	if owned[0] < samples/16 || owned[1] < samples/16 {
		t.Errorf("of the samples that both nodes 0 and 1 keep, they own %v", owned)
	}
	in.Nodes[1].Kept = []int32{samples}
	if _, err := (Cooperative{}).Plan(in); err == nil ||
		!strings.Contains(err.Error(), "node 1 keeps sample 400") {
		t.Errorf("a sample that does not exist: %v", err)
	}
}

// TestFirstReaderOwnsOnSlowLinks: if a link is slower than the source, and the job too short for
// what nodes read more often to matter, each sample is owned by the node that reads it first.
func TestFirstReaderOwnsOnSlowLinks(t *testing.T) {
	const (
		samples = 400
		nodes   = 4
		size    = 100_000
	)
	in := plan.Input{
		Stream: policytest.Stream(t, access.Spec{
			Samples: samples, Epochs: 3, WorldSize: nodes, GlobalBatch: 20,
		}),
		Nodes: policytest.Nodes(nodes, 2*samples*size/nodes),
		Size:  func(int) int64 { return size }, Env: machine(100, 3, 1e4),
	}
	p, err := (Cooperative{}).Plan(in)
	if err != nil {
		t.Fatal(err)
	}
	epoch := in.Stream.Epoch(0)
	first := 0
	for rank := range nodes {
		for step := range in.Stream.Steps() {
			for _, k := range epoch.Batch(nil, rank, step) {
				if slices.Contains(p.Nodes[rank].Classes[0], k) {
					first++
				}
			}
		}
	}
	if first < samples*9/10 {
		t.Errorf("%d of %d samples are kept where they are first read", first, samples)
	}
	if p.ReadOnce {
		t.Error("a link that is slower than the source carries what no node holds")
	}
}
