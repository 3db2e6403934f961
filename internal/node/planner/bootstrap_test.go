package planner

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
)

// TestOthersAreAskedByThePlanThatTheyHave checks that a node keeps what its new plan assigns while
// others may not have theirs, asks for samples by the former one, and retains no more of the nodes
// than it needs.
func TestOthersAreAskedByThePlanThatTheyHave(t *testing.T) {
	window := plan.BootstrapWindow{Steps: 2}
	n := &node{windows: []plan.BootstrapWindow{window, window}}
	policy := held{begun: make(chan struct{}), free: make(chan struct{})}
	owners := func() (all []int) {
		n.mu.Lock()
		defer n.mu.Unlock()
		for id := range samples {
			all = append(all, n.owner(id))
		}
		return all
	}
	var asked []int
	var kept [][]int32
	n.planned = func() error { asked, kept = owners(), n.kept; return nil }
	p := start(t, n, policy, func(o *Options) {
		o.Classes = []Class{{Capacity: 14000, Held: []int32{1}}}
	})
	if err := p.Begin(0, 0); err != nil {
		t.Fatal(err)
	}
	p.Feeds(0)
	<-policy.begun
	before := owners()
	close(policy.free)
	<-p.Done()
	if after := owners(); !slices.Equal(asked, before) || slices.Equal(after, before) {
		t.Errorf("owners are %v at first, %v until all have plans, then %v", before, asked, after)
	}
	if want := p.Plan().Nodes[0].Classes; !cmp.Equal(kept, want) {
		t.Errorf("%v are kept until all have plans, want %v", kept, want)
	}
	for _, known := range p.nodes {
		if known.Held != nil || known.Kept != nil || known.Known != nil {
			t.Errorf("what a node held is kept: %+v", known)
		}
	}
}

// failing is a policy whose Plan fails.
type failing struct{ policies.Cooperative }

var errPlan = errors.New("no plan")

func (failing) Plan(plan.Input) (*plan.Plan, error) { return nil, errPlan }

// TestJobFailsWithoutAPlan checks that a plan that cannot be made, or of which the other nodes are
// not known to have theirs, ends the job; a plan that is made at once is an error of New.
func TestJobFailsWithoutAPlan(t *testing.T) {
	windows := []plan.BootstrapWindow{{Steps: 2}, {Steps: 2}}
	for name, c := range map[string]struct {
		n      *node
		policy plan.Policy
	}{
		"no plan": {&node{windows: windows}, failing{}},
		"not agreed": {
			&node{windows: windows, planned: func() error { return errPlan }},
			policies.Cooperative{},
		},
	} {
		var failed error
		p := start(t, c.n, c.policy, func(o *Options) { o.Fail = func(err error) { failed = err } })
		if err := p.Begin(0, 0); err != nil {
			t.Fatal(err)
		}
		p.Feeds(0)
		<-p.Done()
		if !errors.Is(failed, errPlan) {
			t.Errorf("%s: the job failed with %v", name, failed)
		}
	}
	at := func(o *Options) { o.AtOnce = 1e12 }
	if _, err := New(t.Context(), options(t, &node{}, failing{}, at)); !errors.Is(err, errPlan) {
		t.Errorf("a plan made at once: %v", err)
	}
	lost := &node{lost: errors.New("node 1 is gone")}
	if _, err := New(t.Context(), options(t, lost, policies.Cooperative{}, at)); err != lost.lost {
		t.Errorf("nodes that are gone: %v", err)
	}
}

// noting is a policy that notes what it plans with.
type noting struct {
	policies.Cooperative
	in  chan plan.Input
	end chan struct{}
}

func (g noting) Plan(in plan.Input) (*plan.Plan, error) {
	g.in <- in
	<-g.end
	return g.Cooperative.Plan(in)
}

// TestNodesResumeFromTheSameWindows checks that planning begins when all ranks have a batch, with
// what all nodes hold after the longest of their windows, which this node keeps.
func TestNodesResumeFromTheSameWindows(t *testing.T) {
	held := func(windows ...plan.BootstrapWindow) (in plan.Input) {
		synctest.Test(t, func(t *testing.T) {
			n := &node{windows: windows}
			policy := noting{in: make(chan plan.Input), end: make(chan struct{})}
			p := start(t, n, policy)
			begun := time.Now()
			if err := p.Begin(0, 0); err != nil {
				t.Fatal(err)
			}
			p.Feeds(0)
			in = <-policy.in
			if took := time.Since(begun); took > 0 {
				t.Errorf("planning began %v after all ranks had a batch", took)
			}
			n.mu.Lock()
			if !cmp.Equal(n.kept, in.Nodes[0].Held) {
				t.Errorf("%v are kept, but %v are planned with", n.kept, in.Nodes[0].Held)
			}
			n.mu.Unlock()
			close(policy.end)
			<-p.Done()
		})
		return in
	}
	mixed := held(plan.BootstrapWindow{Steps: 3}, plan.BootstrapWindow{Steps: 9})
	equal := held(plan.BootstrapWindow{Steps: 9}, plan.BootstrapWindow{Steps: 9})
	for n := range mixed.Nodes {
		if a, b := mixed.Nodes[n].Held, equal.Nodes[n].Held; !cmp.Equal(a, b) || len(b[0]) == 0 {
			t.Errorf("node %d holds %v after windows of 3 and 9 steps, and %v after 9", n, a, b)
		}
	}
}
