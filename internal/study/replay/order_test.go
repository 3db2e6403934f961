package replay

import (
	"slices"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
)

// orderedOnNodes is the report of a job under a policy with an order of its own, from these
// capacities by node.
func orderedOnNodes(policy string, configured ...any) map[string]any {
	report := onNodes()
	report["policy"] = policy
	report["order"] = map[string]any{"configured_capacities": configured}
	return report
}

func of(capacities ...any) []any { return capacities }

// TestOrdersAreThoseOfTheRun: they are made from what was configured, or from what a question
// changes, and not from what caches had.
func TestOrdersAreThoseOfTheRun(t *testing.T) {
	for name, c := range map[string]struct {
		policy     string
		configured [][]any
		v          Variation
		nodes      int
		capacity   int64
	}{
		"as it ran":     {"sharded", [][]any{of(20_000_000), of(20_000_000)}, AsItRan, 2, 20_000_000},
		"as configured": {"sharded", [][]any{of(-1), of(-1)}, AsItRan, 2, plan.Unlimited},
		"other memory": {
			"deepio_opportunistic",
			[][]any{of(50_000_000), of(50_000_000)},
			Variation{Memory: 10_000_000},
			2, 10_000_000,
		},
		"other nodes": {
			"locality",
			[][]any{of(50_000_000), of(50_000_000)},
			Variation{Memory: -1, Nodes: 4},
			4, 50_000_000,
		},
	} {
		run, err := readRun(t, orderedOnNodes(c.policy, c.configured[0], c.configured[1]))
		if err != nil {
			t.Fatal(err)
		}
		job, err := run.job(t.Context(), nil, c.v)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		policy, err := policies.ByName(c.policy)
		if err != nil {
			t.Fatal(err)
		}
		in := plan.Input{
			Stream: job.Stream.Original(), Size: func(int) int64 { return 1_000_000 }, Epochs: 1,
		}
		for n := range c.nodes {
			in.Nodes = append(in.Nodes, plan.Node{Ranks: []int{n}, Capacity: []int64{c.capacity}})
		}
		want, err := plan.Ordered(policy, in)
		if err != nil {
			t.Fatal(err)
		}
		got, is := job.Stream.Epoch(1).Samples(), want.Stream.Epoch(1).Samples()
		if !slices.Equal(got, is) || slices.Equal(got, job.Stream.Original().Epoch(1).Samples()) {
			t.Errorf("%s: epoch 1 is %v, want %v", name, got, is)
		}
	}
}

// TestWrongOrders: a report whose order cannot be made again is refused by key.
func TestWrongOrders(t *testing.T) {
	for want, configured := range map[string][]any{
		"order.configured_capacities has 1 nodes of 2":                {of(-1)},
		"order.configured_capacities[1] has 2 storage classes of 1":   {of(-1), of(-1, -1)},
		"order.configured_capacities[1][0] is -2; it must be 0 or mo": {of(-1), of(-2)},
	} {
		if _, err := readRun(t, orderedOnNodes("sharded", configured...)); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v; it should say %q", err, want)
		}
	}
}
