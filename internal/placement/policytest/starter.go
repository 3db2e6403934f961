package policytest

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/hdmlp/hdmlp/internal/access"
	"github.com/hdmlp/hdmlp/internal/placement"
)

// DrawLead draws a lead within the input's horizon.
func DrawLead(t *rapid.T, in placement.Input) placement.Lead {
	steps, epochs := in.Stream.Steps(), in.Stream.Spec().Epochs
	lead := placement.Lead{
		Step:  rapid.IntRange(0, steps-1).Draw(t, "step"),
		Steps: rapid.IntRange(0, steps).Draw(t, "steps"),
	}
	if known := in.Stream.GivenEpochs(); known != nil {
		lead.Epoch = rapid.SampledFrom(known).Draw(t, "epoch")
	} else {
		lead.Epoch = rapid.IntRange(0, epochs-1).Draw(t, "epoch")
	}
	return lead
}

// starts checks that what nodes keep before there is a plan fits, that a longer lead only adds to
// it, and that the plan that follows leaves it in place.
func starts(t *testing.T, policy placement.Starter) {
	rapid.Check(t, func(t *rapid.T) {
		in := DrawInput(t)
		lead := DrawLead(t, in)
		first, err := policy.First(in, lead)
		if err != nil {
			t.Fatal(err)
		}
		longer, err := policy.First(in,
			placement.Lead{Epoch: lead.Epoch, Step: lead.Step, Steps: in.Stream.Steps()})
		if err != nil {
			t.Fatal(err)
		}
		resumed, err := placement.Resume(policy, in,
			slices.Repeat([]placement.Lead{lead}, len(in.Nodes)))
		if err != nil {
			t.Fatal(err)
		}
		p := Plan(t, policy, resumed)
		read := readIn(in.Stream, lead)
		for n, node := range first.Nodes {
			for j, class := range node.Classes {
				var sum int64
				if had := longer.Nodes[n].Classes[j]; len(had) < len(class) ||
					!slices.Equal(had[:len(class)], class) {
					t.Fatalf("class %d of node %d has %v after a lead of %+v, but %v "+
						"after an epoch", j+1, n, class, lead, had)
				}
				for _, k := range class {
					sum += in.Size(int(k))
					if !slices.Contains(p.Nodes[n].Classes[j], k) {
						t.Fatalf("the plan lacks sample %d in class %d of node %d", k,
							j+1, n)
					}
					if !read[k] && !slices.Contains(in.Nodes[n].Held[j], k) {
						t.Fatalf("node %d keeps sample %d, which no node reads in the lead %+v", n,
							k, lead)
					}
				}
				if sum > in.Nodes[n].Capacity[j] {
					t.Fatalf("class %d of node %d takes %d bytes of %d", j+1, n, sum,
						in.Nodes[n].Capacity[j])
				}
			}
		}
		for k := range in.Stream.Spec().Samples {
			if owner := first.OwnerOf(k); owner >= 0 &&
				!slices.ContainsFunc(first.Nodes[owner].Classes, func(ids []int32) bool {
					return slices.Contains(ids, int32(k))
				}) {
				t.Fatalf("node %d owns sample %d, which it does not keep", owner, k)
			}
		}
	})
}

// readIn returns the samples that are read in a lead.
func readIn(s *access.Stream, lead placement.Lead) map[int32]bool {
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

func refusesLeads(t *testing.T, policy placement.Starter) {
	in := several(t)
	for _, lead := range []placement.Lead{
		{Epoch: -1},
		{Epoch: 4},
		{Step: -1},
		{Step: 11},
		{Steps: -1},
		{Steps: 11},
	} {
		if _, err := policy.First(in, lead); err == nil {
			t.Errorf("%+v is accepted", lead)
		}
	}
	if _, err := placement.Resume(policy, in, make([]placement.Lead, 2)); err == nil {
		t.Error("two leads for three nodes are accepted")
	}
}
