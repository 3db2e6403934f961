package policies

import (
	"slices"
	"testing"

	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/plan/policytest"
)

// TestLBANNHoldsTheDataset: if the dataset exactly fits into memory, each sample is on one node,
// however unevenly the first epoch distributes the samples.
func TestLBANNHoldsTheDataset(t *testing.T) {
	for n := 2; n <= 4; n++ {
		for _, scheme := range []access.Scheme{
			access.Strided, access.Uniform, access.Imbalanced,
			access.Whole,
		} {
			in := plan.Input{
				Stream: policytest.Stream(t,
					access.Spec{
						Samples:     60,
						Seed:        5,
						Epochs:      2,
						WorldSize:   n,
						GlobalBatch: 2 * n,
						Tail:        access.Keep,
						Scheme:      scheme,
					}),
				Nodes: policytest.Nodes(n, int64(60/n)), Size: func(int) int64 { return 1 },
			}
			for _, policy := range []plan.Policy{LBANN{}, LBANN{Preloading: true}} {
				p := policytest.Plan(t, policy, in)
				held := 0
				for _, node := range p.Nodes {
					held += len(node.Classes[0])
				}
				if held != 60 || slices.Contains(p.Owner, -1) {
					t.Errorf("%s, %d nodes, %s: %d copies of 60 samples, owners %v", policy.Name(),
						n, scheme, held, p.Owner)
				}
			}
		}
	}
}

// TestDeepIOTakesPartsThatJustFit: a node whose part fills its memory to the last byte holds its
// own part.
func TestDeepIOTakesPartsThatJustFit(t *testing.T) {
	in := plan.Input{
		Stream: policytest.Stream(t,
			access.Spec{Samples: 5, Epochs: 2, WorldSize: 2, GlobalBatch: 2, Tail: access.Keep}),
		Nodes: policytest.Nodes(2, 3), Size: func(int) int64 { return 1 },
	}
	p := policytest.Plan(t, DeepIO{}, in)
	if a, b := p.Nodes[0].Classes[0], p.Nodes[1].Classes[0]; !slices.Equal(a, []int32{0, 1}) ||
		!slices.Equal(b, []int32{2, 3, 4}) {
		t.Errorf("the nodes hold %v and %v, want 0 1 and 2 3 4", a, b)
	}
}

// TestPartitionedOwnersReadFirst: the node that reads a sample first in the first epoch owns it, if
// it fits, even if other nodes later get copies.
func TestPartitionedOwnersReadFirst(t *testing.T) {
	in := plan.Input{
		Stream: policytest.Stream(t,
			access.Spec{
				Samples:     60,
				Seed:        2,
				Epochs:      5,
				WorldSize:   3,
				GlobalBatch: 6,
				Tail:        access.Keep,
			}),
		Nodes: policytest.Nodes(3, 40), Size: func(int) int64 { return 1 },
	}
	p := policytest.Plan(t, Partitioned{}, in)
	copies := 0
	for _, node := range p.Nodes {
		copies += len(node.Classes[0])
	}
	if copies != 120 {
		t.Errorf("%d copies, and 120 fit", copies)
	}
	for n := range in.Nodes {
		for step := range in.Stream.Steps() {
			for _, k := range in.Stream.Epoch(0).Batch(nil, n, step) {
				if p.OwnerOf(int(k)) != n {
					t.Errorf("node %d owns sample %d, which node %d reads first",
						p.OwnerOf(int(k)), k, n)
				}
			}
		}
	}
}
