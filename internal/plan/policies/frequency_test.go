package policies

import (
	stdcmp "cmp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/plan/policytest"
)

// TestFrequencyFillsClassesMostFrequentFirst compares with the definition: per node, most frequent
// first, class by class.
func TestFrequencyFillsClassesMostFrequentFirst(t *testing.T) {
	const (
		f      = 900
		n      = 3
		epochs = 12
	)
	in := plan.Input{
		Stream: policytest.Stream(t,
			access.Spec{Samples: f, Seed: 3, Epochs: epochs, WorldSize: n, GlobalBatch: 30}),
		Nodes: policytest.Nodes(n, 100*10, 200*10), Size: func(int) int64 { return 10 },
	}
	p := policytest.Plan(t, Frequency{}, in)
	for node := range n {
		freq := in.Stream.Frequencies([]int{node}, 0, epochs)
		firstEpoch := make([]int, f)
		for e := epochs - 1; e >= 0; e-- {
			for _, k := range in.Stream.Epoch(e).Reads(node) {
				firstEpoch[k] = e
			}
		}
		sorted := make([]int32, f)
		for k := range sorted {
			sorted[k] = int32(k)
		}
		slices.SortStableFunc(sorted, func(x, y int32) int {
			return stdcmp.Or(int(freq[y])-int(freq[x]), firstEpoch[x]-firstEpoch[y])
		})
		first := map[int32]int{}
		for i, k := range in.Stream.FirstAccess([]int{node}, 0, epochs) {
			first[k] = i
		}
		for j, want := range [][]int32{sorted[:100], sorted[100:300]} {
			want = slices.Clone(want)
			slices.SortFunc(want, func(x, y int32) int { return first[x] - first[y] })
			if diff := cmp.Diff(want, p.Nodes[node].Classes[j]); diff != "" {
				t.Errorf("node %d class %d (-want +got):\n%s", node, j+1, diff)
			}
		}
	}
}

// TestFrequencyOwnersAreTheFastest checks that the owner of a sample is a node that holds it in the
// fastest class, and that nodes that tie take turns.
func TestFrequencyOwnersAreTheFastest(t *testing.T) {
	const f, n = 900, 3
	in := plan.Input{
		Stream: policytest.Stream(t,
			access.Spec{Samples: f, Seed: 3, Epochs: 12, WorldSize: n, GlobalBatch: 30}),
		Nodes: policytest.Nodes(n, 200, 500), Size: func(int) int64 { return 1 },
	}
	p := policytest.Plan(t, Frequency{}, in)
	class := func(node, k int) int {
		return slices.IndexFunc(p.Nodes[node].Classes, func(ids []int32) bool {
			return slices.Contains(ids, int32(k))
		})
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
			t.Fatalf("node %d owns sample %d; nodes %v have it in the fastest class", owner,
				k, best)
		}
		if len(best) == n {
			owned[owner]++
			ties++
		}
	}
	for node, k := range owned {
		if k < ties/n/2 {
			t.Errorf("of %d samples that all nodes hold in the same class, node %d owns %d", ties,
				node, k)
		}
	}
}

// TestFrequencyKeepsNothingBeforeThePlan: on several nodes, so that the plan is that of the thesis.
func TestFrequencyKeepsNothingBeforeThePlan(t *testing.T) {
	in := plan.Input{
		Stream: policytest.Stream(t,
			access.Spec{Samples: 60, Epochs: 4, WorldSize: 3, GlobalBatch: 6}),
		Nodes: policytest.Nodes(3, 15), Size: func(int) int64 { return 1 },
	}
	resumed, err := plan.Resume(Frequency{}, in,
		slices.Repeat([]plan.BootstrapWindow{{Steps: 10}}, 3))
	if err != nil {
		t.Fatal(err)
	}
	if with, without := policytest.Plan(t, Frequency{}, resumed),
		policytest.Plan(t, Frequency{}, in); !cmp.Equal(with, without) {
		t.Errorf("the plan differs: %s", cmp.Diff(without, with))
	}
}
