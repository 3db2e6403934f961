package policies

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/plan/policytest"
)

// TestPoliciesWithOwnOrdersRefuseOthers: policies that draw an order of their own refuse a part of
// the dataset and what a sampler draws, those that deal batches only the latter.
func TestPoliciesWithOwnOrdersRefuseOthers(t *testing.T) {
	given, err := access.NewGiven(4, []int32{4}, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := given.Give(0, []int32{3, 3, 1, 0}); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*access.Stream{
		given,
		policytest.Stream(t, access.Spec{
			Samples:     4,
			Subset:      []int32{1, 2},
			Epochs:      1,
			WorldSize:   1,
			GlobalBatch: 1,
		}),
	} {
		in := plan.Input{
			Stream: s,
			Nodes:  policytest.Nodes(1, 10),
			Size:   func(int) int64 { return 1 },
		}
		for _, p := range All() {
			how := entries[p.Name()]
			refuses := how.Draws && !how.Evicts || (how.Deals || how.Draws) && s == given
			var unsupported *plan.Unsupported
			if _, err := plan.Ordered(p, in); errors.As(err, &unsupported) != refuses {
				t.Errorf("%s: %v, and it should refuse: %v", p.Name(), err, refuses)
			}
		}
	}
}

// TestLocalityKeepsBatches: every global batch has the same samples, every node as many as before,
// and more of those that it holds.
func TestLocalityKeepsBatches(t *testing.T) {
	for seed := range uint64(50) {
		in := policytest.SimulatorInput(t, seed, 1)
		dealt := ordered(t, Locality{}, in)
		p := policytest.Plan(t, Locality{}, dealt)
		hits, before := 0, 0
		for e := range in.Stream.Spec().Epochs {
			order, own := dealt.Stream.Epoch(e), in.Stream.Epoch(e)
			for step := range in.Stream.Steps() {
				var all []int32
				for n := range in.Nodes {
					ids, was := order.Batch(nil, n, step), own.Batch(nil, n, step)
					if len(ids) != len(was) {
						t.Fatalf("seed %d: node %d has %d samples at step %d, and had %d", seed, n,
							len(ids), step, len(was))
					}
					for i := range ids {
						if p.OwnerOf(int(ids[i])) == n {
							hits++
						}
						if p.OwnerOf(int(was[i])) == n {
							before++
						}
					}
					all = append(all, ids...)
				}
				global := own.Global(nil, step)
				slices.Sort(all)
				slices.Sort(global)
				if !slices.Equal(all, global) {
					t.Fatalf("seed %d: global batch %d of epoch %d has %v, and had %v", seed, step,
						e, all, global)
				}
			}
		}
		if hits < before || len(in.Nodes) > 1 && hits == before {
			t.Errorf("seed %d: nodes hold %d of what they read, and %d before", seed, hits, before)
		}
	}
}

// TestOrdersOfHeldSamplesAreFullShuffles: sharded and opportunistic DeepIO read only held samples,
// all of them before any again, and in another order in each epoch.
func TestOrdersOfHeldSamplesAreFullShuffles(t *testing.T) {
	for seed := range uint64(50) {
		for _, policy := range []plan.Policy{Sharded{}, DeepIO{Opportunistic: true}} {
			in := policytest.SimulatorInput(t, seed, 0.6)
			drawn := ordered(t, policy, in)
			p := policytest.Plan(t, policy, drawn)
			holds := make([]map[int32]bool, len(in.Nodes))
			held := map[int32]bool{}
			for n, node := range p.Nodes {
				holds[n] = map[int32]bool{}
				for _, ids := range node.Classes {
					for _, k := range ids {
						holds[n][k], held[k] = true, true
					}
				}
			}
			var first []int32
			for e := range 2 {
				counts := make([]map[int32]int, len(in.Nodes))
				together := map[int32]int{}
				var read []int32
				for n := range in.Nodes {
					counts[n] = map[int32]int{}
				}
				for step := range in.Stream.Steps() {
					for n := range in.Nodes {
						ids := drawn.Stream.Epoch(e).Batch(nil, n, step)
						if want := in.Stream.Epoch(e).Batch(nil, n, step); len(ids) != len(want) {
							t.Fatalf("seed %d, %s: %d samples in a batch of %d", seed, p.Policy,
								len(ids), len(want))
						}
						for _, k := range ids {
							counts[n][k]++
							together[k]++
						}
						read = append(read, ids...)
					}
				}
				if policy == (DeepIO{Opportunistic: true}) {
					checkEven(t, seed, p.Policy, together, held)
				} else {
					for n := range counts {
						checkEven(t, seed, p.Policy, counts[n], holds[n])
					}
				}
				if e == 1 && len(read) > 10 && slices.Equal(read, first) {
					t.Errorf("seed %d, %s: epochs 0 and 1 have the same order", seed, p.Policy)
				}
				first = read
			}
		}
	}
}

// checkEven checks that only held samples were read, and that no two counts differ by more than 1.
func checkEven(t *testing.T, seed uint64, policy string, counts map[int32]int,
	held map[int32]bool,
) {
	t.Helper()
	least, most := 1<<30, 0
	for k := range held {
		least, most = min(least, counts[k]), max(most, counts[k])
	}
	for k := range counts {
		if !held[k] {
			t.Fatalf("seed %d, %s: reads sample %d, which is not held", seed, policy, k)
		}
	}
	if most-least > 1 {
		t.Errorf("seed %d, %s: a sample is read %d times and another %d times", seed, policy, most,
			least)
	}
}

func TestPoliciesRefuseWhatTheyDoNotSupport(t *testing.T) {
	for _, c := range []struct {
		policy plan.Policy
		share  float64
		want   string
	}{
		{LBANN{}, 0.5, "must hold the dataset"},
		{LBANN{Preloading: true}, 0.5, "must hold the dataset"},
		{Sharded{}, 0, "no storage class"},
		{DeepIO{}, 0, "no storage class"},
		{DeepIO{Opportunistic: true}, 0.001, "no sample fits"},
		{Sharded{}, 0.001, "no sample of its shard fits"},
	} {
		in := policytest.SimulatorInput(t, 3, c.share)
		in, err := plan.Ordered(c.policy, in)
		if err == nil {
			_, err = c.policy.Plan(in)
		}
		var no *plan.Unsupported
		if !errors.As(err, &no) || !strings.Contains(no.Reason, c.want) ||
			no.Policy != c.policy.Name() {
			t.Errorf("%s with %v of the dataset: %v, want that %q", c.policy.Name(), c.share, err,
				c.want)
		}
	}
}

// TestDeepIOHoldsContiguousParts: each node holds its own part, if all parts fit; otherwise as many
// samples as fit, from where the previous node stopped.
func TestDeepIOHoldsContiguousParts(t *testing.T) {
	for seed := range uint64(50) {
		for _, share := range []float64{0.4, 0.9, 1.2, 3} {
			in := policytest.SimulatorInput(t, seed, share)
			p := policytest.Plan(t, DeepIO{}, in)
			type part struct{ from, to int32 }
			parts, f := make([]part, len(in.Nodes)), in.Stream.Spec().Samples
			for n := range parts {
				parts[n] = part{int32(f * n / len(parts)), int32(f * (n + 1) / len(parts))}
			}
			fit := true
			for n, part := range parts {
				room := in.Nodes[n].Capacity[0]
				for k := part.from; k < part.to; k++ {
					room -= in.Size(int(k))
				}
				fit = fit && room >= 0
			}
			next := int32(0)
			for n, node := range p.Nodes {
				if fit {
					next = parts[n].from
				}
				for _, k := range node.Classes[0] {
					if k != next {
						t.Fatalf("seed %d: node %d holds sample %d where %d is expected", seed, n,
							k, next)
					}
					next++
				}
				if fit && next != parts[n].to {
					t.Fatalf("seed %d: node %d stops before sample %d, but its part ends before %d",
						seed, n, next, parts[n].to)
				}
			}
		}
	}
}

// ordered returns the input with the policy's order.
func ordered(t *testing.T, policy plan.Policy, in plan.Input) plan.Input {
	t.Helper()
	in, err := plan.Ordered(policy, in)
	if err != nil {
		t.Fatal(err)
	}
	return in
}
