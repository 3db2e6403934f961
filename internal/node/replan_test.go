package node

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/node/request"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
)

// cautious is a policy that uses a quarter of each class as long as nothing is measured.
type cautious struct{ policies.Cooperative }

func (p cautious) Plan(in plan.Input) (*plan.Plan, error) {
	if in.Env == nil {
		nodes := make([]plan.Node, len(in.Nodes))
		for n := range nodes {
			nodes[n] = in.Nodes[n]
			nodes[n].Capacity = []int64{in.Nodes[n].Capacity[0] / 4}
		}
		in.Nodes = nodes
	}
	return p.Cooperative.Plan(in)
}

// redundant is a policy that has all nodes keep the same samples as long as nothing is measured.
type redundant struct{ policies.Cooperative }

func (p redundant) Plan(in plan.Input) (*plan.Plan, error) {
	plan, err := p.Cooperative.Plan(in)
	if in.Env != nil || err != nil {
		return plan, err
	}
	for k := range plan.Owner {
		plan.Owner[k] = -1
	}
	for n := range plan.Nodes {
		class := plan.Nodes[n].Classes[0]
		for i := range class {
			class[i] = int32(i)
			plan.Owner[i] = int32(i % len(plan.Nodes))
		}
	}
	return plan, nil
}

// TestNodesFollowAnotherPlanOnceTheyHaveMeasured: whole nodes, which planned without knowing that
// the source is slow, adopt the same better plan after an epoch, deliver the same stream all the
// time, and read the source no more. A node that is then cut off does not change the stream.
func TestNodesFollowAnotherPlanOnceTheyHaveMeasured(t *testing.T) {
	config := filepath.Join(t.TempDir(), "hdmlp.toml")
	if err := os.WriteFile(config, []byte("[environment]\nnetwork = 1000.0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		policy plan.Policy
		memory string
		from   int // the epoch from which on all follow the new plan
	}{
		"fills what is free":          {cautious{}, "40000B", 2},
		"drops what it does not want": {redundant{}, "14000B", 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { followAnother(t, config, c.policy, c.memory, c.from) })
		})
	}
}

func followAnother(t *testing.T, config string, policy plan.Policy, memory string, from int) {
	c := newVirtualNodes(t, 3, false)
	for i, node := range c.list {
		node.options.Strategy.AtOnce = time.Hour
		node.options.Strategy.Policy = func(string) (plan.Policy, error) { return policy, nil }
		read := c.worlds[i].read
		c.worlds[i].read = func(ctx context.Context, id int) error {
			time.Sleep(20 * time.Millisecond)
			return read(ctx, id)
		}
	}
	ranks := c.open(set("memory", memory), func(m *request.Open) {
		m.ConfigFile, m.Stream.Epochs = config, 40
	})
	plan := func(i int) uint64 {
		return ranks[i].entry.open.Job.Planner().Plan().Fingerprint()
	}
	first := plan(0)
	c.epochs(ranks, 0, 4)
	time.Sleep(time.Minute) // room is made, and filled
	before, _ := c.read()
	c.epochs(ranks, 4, 6)
	if after, _ := c.read(); after != before {
		t.Errorf("%d reads from the source although the new plan holds all", after-before)
	}
	for i, r := range ranks {
		rounds, now := r.entry.open.Job.Planner().Replanned(), plan(i)
		if len(rounds) < 2 || !rounds[from-2].Adopted || rounds[from-2].From != from ||
			rounds[from-2].New > 0.5*rounds[from-2].Seconds {
			t.Errorf("node %d decided %+v", i, rounds)
		}
		if now == first || now != plan(0) {
			t.Errorf("node %d follows plan %x, the first was %x", i, now, first)
		}
		if r.entry.open.Job.Planner().Environment() == nil {
			t.Errorf("node %d has no environment", i)
		}
		if got := r.Report().Replanning; len(got) < len(rounds) || // there may be another one now
			!slices.Equal(got[:len(rounds)], rounds) {
			t.Errorf("node %d reports %+v", i, got)
		}
	}
	c.network.Cut("10.0.0.3")
	c.epochs(ranks[:2], 6, 7)
	c.network.Join("10.0.0.3")
	closeAll(ranks)
	c.close()
}
