package policies

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/plan/policytest"
)

// TestCooperativeReachesTheBound checks that no sample that fits into a class and is read stays
// uncached, on one node and on several: every class has less capacity left than the smallest of
// these needs. What no epoch reads, because all of them leave it out, is not cached.
func TestCooperativeReachesTheBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := policytest.DrawInput(t)
		p := policytest.Plan(t, Cooperative{}, in)
		read := readLater(t, in)
		least := int64(math.MaxInt64)
		for k := range read {
			if p.OwnerOf(k) < 0 && read[k] {
				least = min(least, in.Size(k))
			}
		}
		for n, node := range p.Nodes {
			for j, class := range node.Classes {
				room, held := in.Nodes[n].Capacity[j], slices.Concat(in.Nodes[n].Held...)
				for _, k := range class {
					room -= in.Size(int(k))
					if !read[k] && !slices.Contains(held, k) {
						t.Fatalf("node %d keeps sample %d, which no epoch reads", n, k)
					}
				}
				if room >= least {
					t.Fatalf("class %d of node %d has %d bytes left, and a sample of %d "+
						"is not cached",
						j+1, n, room, least)
				}
			}
		}
	})
}

// readLater returns which samples the epochs to plan for read; of given ones, may read.
func readLater(t *rapid.T, in plan.Input) []bool {
	to, _, err := in.Check()
	if err != nil {
		t.Fatal(err)
	}
	read := make([]bool, in.Stream.Spec().Samples)
	for e := in.From; e < to; e++ {
		for step := range in.Stream.Steps() {
			for _, k := range in.Stream.Epoch(e).Global(nil, step) {
				read[k] = true
			}
		}
	}
	for k := range read {
		read[k] = read[k] || in.Given() && in.Stream.Has(k)
	}
	return read
}

// TestOneNodeReadsTheBound counts the bytes that one node reads from the source.
func TestOneNodeReadsTheBound(t *testing.T) {
	const f, epochs = 5000, 6
	size := func(id int) int64 { return 20_000 + int64(access.Mix(3, id)%200_000) }
	var dataset int64
	for k := range f {
		dataset += size(k)
	}
	for _, share := range []float64{0, 0.1, 0.5, 0.9, 1, 1.5} {
		d := int64(share * float64(dataset))
		in := plan.Input{
			Stream: policytest.Stream(t,
				access.Spec{Samples: f, Seed: 1, Epochs: epochs, WorldSize: 1, GlobalBatch: 50}),
			Nodes: policytest.Nodes(1, d/4, d-d/4), Size: size,
		}
		p := policytest.Plan(t, Cooperative{}, in)
		read := dataset
		for k := range f {
			if p.OwnerOf(k) < 0 {
				read += (epochs - 1) * size(k)
			}
		}
		bound := plan.Bound(dataset, d, epochs)
		if read < bound || float64(read) > 1.001*float64(bound) {
			t.Errorf("a cache of %.1f of the dataset: %d bytes from the source, the bound is %d",
				share, read, bound)
		}
	}
}
