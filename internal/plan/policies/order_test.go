package policies

import (
	"cmp"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/policytest"
)

// firstNeeds returns, per sample, when the ranks together first need it before epoch `to`, counted
// in reads from the horizon's start; math.MaxInt if they never do.
func firstNeeds(in plan.Input, ranks []int, to int) []int {
	first := make([]int, in.Stream.Spec().Samples)
	for k := range first {
		first[k] = math.MaxInt
	}
	n := 0
	for e := in.From; e < to; e++ {
		for r, k := range in.Stream.Epoch(e).Reads() {
			if n++; len(ranks) == 0 || slices.Contains(ranks, r) {
				first[k] = min(first[k], n)
			}
		}
	}
	return first
}

// checkOrder compares the order in which classes are filled with its definition.
func checkOrder(t interface{ Fatalf(string, ...any) }, in plan.Input, p *plan.Plan,
	shared bool,
) {
	to, _, err := in.Check()
	if err != nil {
		t.Fatalf("%v", err)
	}
	if p.Policy == "cooperative" && len(in.Nodes) == 1 && !in.Varies() {
		to = in.From + 1 // it plans for one epoch
	}
	anyone := firstNeeds(in, nil, to)
	for n, node := range p.Nodes {
		own := firstNeeds(in, in.Nodes[n].Ranks, to)
		for j, got := range node.Classes {
			var has []int32
			if j < len(in.Nodes[n].Held) {
				has = in.Nodes[n].Held[j]
			}
			need := func(k int32) int {
				switch {
				case slices.Contains(has, k):
					return slices.Index(has, k) - len(has)
				case shared && p.OwnerOf(int(k)) == n:
					return anyone[k]
				}
				return own[k]
			}
			want := slices.Clone(got)
			slices.SortFunc(want, func(x, y int32) int {
				return cmp.Or(cmp.Compare(need(x), need(y)), cmp.Compare(x, y))
			})
			if !slices.Equal(got, want) {
				t.Fatalf("%s: class %d of node %d is filled in the order %v, want %v", p.Policy,
					j+1, n, got, want)
			}
		}
	}
}

// TestClassesAreFilledInTheOrderOfFirstNeed: held samples come first, then others by first need,
// then those that are never needed, by ID.
func TestClassesAreFilledInTheOrderOfFirstNeed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := policytest.DrawInput(t)
		checkOrder(t, in, policytest.Plan(t, Cooperative{}, in), true)
		checkOrder(t, in, policytest.Plan(t, Frequency{}, in), false)
		checkOrder(t, in, policytest.Plan(t, MinIO{}, in), false)
	})
	for seed := range uint64(50) {
		in := policytest.SimulatorInput(t, seed, 3)
		checkOrder(t, in, policytest.Plan(t, LBANN{}, in), true)
		checkOrder(t, in, policytest.Plan(t, Partitioned{}, in), false)
	}
}
