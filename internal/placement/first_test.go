package placement

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/hdmlp/hdmlp/internal/access"
)

// starters are the policies that know what to do before there is a plan.
func starters() []Starter {
	var list []Starter
	for _, p := range Policies() {
		if s, ok := p.(Starter); ok {
			list = append(list, s)
		}
	}
	return list
}

// drawLead draws a lead that the input's horizon has room for.
func drawLead(t *rapid.T, in Input) Lead {
	steps, epochs := in.Stream.Steps(), in.Stream.Spec().Epochs
	if known := in.Stream.GivenEpochs(); known != nil {
		return Lead{rapid.SampledFrom(known).Draw(t, "epoch"), rapid.IntRange(0, steps-1).Draw(t, "step"), rapid.IntRange(0, steps).Draw(t, "steps")}
	}
	return Lead{
		Epoch: rapid.IntRange(0, epochs-1).Draw(t, "epoch"), Step: rapid.IntRange(0, steps-1).Draw(t, "step"),
		Steps: rapid.IntRange(0, steps).Draw(t, "steps"),
	}
}

// TestFirst: what nodes keep before there is a plan fits, a longer lead only adds to it, and the plan that follows leaves it
// all where it is.
func TestFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		lead := drawLead(t, in)
		for _, policy := range starters() {
			first, err := policy.First(in, lead)
			if err != nil {
				t.Fatal(err)
			}
			for n, node := range first.Nodes {
				for j, class := range node.Classes {
					var sum int64
					for _, k := range class {
						sum += in.Size(int(k))
					}
					if sum > in.Nodes[n].Capacity[j] {
						t.Fatalf("%s: class %d of node %d takes %d bytes of %d", policy.Name(), j+1, n, sum, in.Nodes[n].Capacity[j])
					}
				}
			}
			longer, err := policy.First(in, Lead{lead.Epoch, lead.Step, in.Stream.Steps()})
			if err != nil {
				t.Fatal(err)
			}
			leads := slices.Repeat([]Lead{lead}, len(in.Nodes))
			resumed, err := Resume(policy, in, leads)
			if err != nil {
				t.Fatal(err)
			}
			p := plan(t, policy, resumed)
			for n, node := range first.Nodes {
				for j, class := range node.Classes {
					if had := longer.Nodes[n].Classes[j]; len(had) < len(class) || !slices.Equal(had[:len(class)], class) {
						t.Fatalf("%s: class %d of node %d has %v after a lead of %+v, and %v after an epoch", policy.Name(), j+1, n, class, lead, had)
					}
					for _, k := range class {
						if !slices.Contains(p.Nodes[n].Classes[j], k) {
							t.Fatalf("%s: the plan does not count with sample %d in class %d of node %d", policy.Name(), k, j+1, n)
						}
					}
				}
			}
			read := samplesOf(in.Stream, lead)
			for n, node := range first.Nodes {
				for j, class := range node.Classes {
					for _, k := range class {
						if !read[k] && !slices.Contains(in.Nodes[n].Held[j], k) {
							t.Fatalf("%s: node %d keeps sample %d, which nobody reads in the lead %+v", policy.Name(), n, k, lead)
						}
					}
				}
			}
			for k := range in.Stream.Spec().Samples {
				if owner := first.OwnerOf(k); owner >= 0 && !slices.ContainsFunc(first.Nodes[owner].Classes, func(ids []int32) bool { return slices.Contains(ids, int32(k)) }) {
					t.Fatalf("%s: node %d answers for sample %d, which it does not keep", policy.Name(), owner, k)
				}
			}
		}
	})
}

// samplesOf are those that are read in a lead.
func samplesOf(s *access.Stream, lead Lead) map[int32]bool {
	read := map[int32]bool{}
	epoch, step := lead.Epoch, lead.Step
	for range lead.Steps {
		if step == s.Steps() {
			epoch, step = epoch+1, 0
		}
		if epoch == s.Spec().Epochs || !s.Given(epoch) {
			break
		}
		for _, k := range s.Epoch(epoch).Global(nil, step) {
			read[k] = true
		}
		step++
	}
	return read
}

// TestFirstReadsOnce: where nobody holds anything and the caches have room for the dataset, every sample of the lead is kept by
// one node: its first reader while that has room.
func TestFirstReadsOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(t, "nodes")
		in := Input{
			Stream: stream(t, access.Spec{
				Samples: rapid.IntRange(n, 100).Draw(t, "samples"), Seed: 1, Epochs: 3, WorldSize: n, GlobalBatch: n,
				Tail: rapid.SampledFrom([]access.Tail{access.Pad, access.Keep}).Draw(t, "tail"),
			}),
			Size: func(int) int64 { return 1 },
		}
		in.Nodes = nodes(n, int64((in.Stream.Spec().Samples+n-1)/n))
		lead := drawLead(t, in)
		first, err := Cooperative{}.First(in, lead)
		if err != nil {
			t.Fatal(err)
		}
		count := make([]int, in.Stream.Spec().Samples)
		for _, node := range first.Nodes {
			for _, k := range node.Classes[0] {
				count[k]++
			}
		}
		epoch, step := lead.Epoch, lead.Step
		for range lead.Steps {
			if step == in.Stream.Steps() {
				epoch, step = epoch+1, 0
			}
			if epoch == 3 {
				break
			}
			for _, k := range in.Stream.Epoch(epoch).Global(nil, step) {
				if count[k] != 1 {
					t.Fatalf("%d nodes keep sample %d of step %d", count[k], k, step)
				}
			}
			step++
		}
		if lead.Steps > 0 {
			if reader, k := 0, int(in.Stream.Epoch(lead.Epoch).Batch(nil, 0, lead.Step)[0]); first.OwnerOf(k) != reader {
				t.Fatalf("node %d answers for sample %d, which node %d reads first", first.OwnerOf(k), k, reader)
			}
		}
	})
}

// TestFrequencyFirst: several nodes keep nothing, so that the plan is the thesis's.
func TestFrequencyFirst(t *testing.T) {
	in := Input{
		Stream: stream(t, access.Spec{Samples: 60, Epochs: 4, WorldSize: 3, GlobalBatch: 6}),
		Nodes:  nodes(3, 15), Size: func(int) int64 { return 1 },
	}
	resumed, err := Resume(Frequency{}, in, slices.Repeat([]Lead{{Steps: 10}}, 3))
	if err != nil {
		t.Fatal(err)
	}
	if with, without := plan(t, Frequency{}, resumed), plan(t, Frequency{}, in); !cmp.Equal(with, without) {
		t.Errorf("another plan: %s", cmp.Diff(without, with))
	}
}

func TestBadLead(t *testing.T) {
	in := Input{
		Stream: stream(t, access.Spec{Samples: 60, Epochs: 4, WorldSize: 3, GlobalBatch: 6}),
		Nodes:  nodes(3, 15), Size: func(int) int64 { return 1 },
	}
	for _, lead := range []Lead{{Epoch: -1}, {Epoch: 4}, {Step: -1}, {Step: 11}, {Steps: -1}, {Steps: 11}} {
		for _, policy := range starters() {
			if _, err := policy.First(in, lead); err == nil {
				t.Errorf("%s: %+v is taken", policy.Name(), lead)
			}
		}
	}
	if _, err := Resume(Cooperative{}, in, make([]Lead, 2)); err == nil {
		t.Error("two leads for three nodes are taken")
	}
}

// TestPlanEnds: nobody who waits for a plan any more is kept waiting by it.
func TestPlanEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	in := Input{
		Stream: stream(t, access.Spec{Samples: 2000, Epochs: 20, WorldSize: 3, GlobalBatch: 6}),
		Nodes:  nodes(3, 300, 100), Size: func(int) int64 { return 1 }, Context: ctx,
	}
	for _, policy := range starters() {
		if _, err := policy.Plan(in); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", policy.Name(), err)
		}
		if _, err := policy.First(in, Lead{Steps: 5}); !errors.Is(err, context.Canceled) {
			t.Errorf("%s, first: %v", policy.Name(), err)
		}
	}
}
