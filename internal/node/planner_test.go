package node

import (
	"slices"
	"sync"
	"testing"

	"github.com/hdmlp/hdmlp/internal/lab/testkit"
	"github.com/hdmlp/hdmlp/internal/node/request"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
)

// watched is a policy whose plans a test observes and changes.
type watched struct {
	policies.Cooperative
	first func(plan.BootstrapWindow, *plan.Plan)
	made  func(*plan.Plan)
}

func (p watched) First(in plan.Input,
	window plan.BootstrapWindow,
) (*plan.Plan, error) {
	plan, err := p.Cooperative.First(in, window)
	if err == nil {
		p.first(window, plan)
	}
	return plan, err
}

func (p watched) Plan(in plan.Input) (*plan.Plan, error) {
	plan, err := p.Cooperative.Plan(in)
	if err == nil {
		p.made(plan)
	}
	return plan, err
}

// TestPlanIsOneForAllNodes checks that every node plans with the longest window, so that all make
// the same plan, and that no node asks others by its plan before all have theirs. Node 0 has a
// planner; the test plays that of node 1.
func TestPlanIsOneForAllNodes(t *testing.T) {
	c := newNodes(t, 2, false)
	var mu sync.Mutex
	var windows []plan.BootstrapWindow
	var before, planned []int32 // owners by the first plan, and by the final one
	n := c.list[0]
	n.options.Strategy.AtOnce = -1
	n.options.Strategy.Policy = func(string) (plan.Policy, error) {
		return watched{
			first: func(window plan.BootstrapWindow, p *plan.Plan) {
				mu.Lock()
				defer mu.Unlock()
				if windows = append(windows, window); before == nil {
					before = p.Owner
				}
			},
			made: func(p *plan.Plan) {
				mu.Lock()
				defer mu.Unlock()
				planned = slices.Repeat([]int32{1}, samples)
				p.Policy, p.Owner = "made", planned
			},
		}, nil
	}
	ranks := c.open(set("memory", "22000B"))
	j, o := ranks[0].entry.open, ranks[1].entry.open.Coordinator
	consume(t, ranks[0], at{0, 0}, at{0, 1})
	steps := j.Order.Stream().Steps()
	said, err := o.BootstrapWindows(t.Context(), plan.BootstrapWindow{Steps: 1}, steps)
	if want := []plan.BootstrapWindow{{Steps: steps}, {Steps: 1}}; err != nil ||
		!slices.Equal(said, want) {
		t.Errorf("the nodes' windows are %+v, want %+v; %v", said, want, err)
	}
	testkit.Until(t, "node 0 has its plan", func() bool {
		return j.Job.Planner().Plan().Policy == "made"
	})
	mu.Lock()
	for _, window := range windows {
		if window.Steps != steps {
			t.Errorf("node 0 plans with a window of %+v, but the longest has %d steps", window, steps)
		}
	}
	if now := j.Job.Planner().Plan().Owner; !slices.Equal(now, before) ||
		slices.Equal(before, planned) {
		t.Errorf("before node 1 has its plan, node 0 uses owners %v, want %v", now,
			before)
	}
	mu.Unlock()
	if err := o.Planned(t.Context()); err != nil {
		t.Error(err)
	}
	<-j.Job.Planner().Done()
	if now := j.Job.Planner().Plan().Owner; !slices.Equal(now, planned) {
		t.Errorf("when both have a plan, node 0 uses owners %v", now)
	}
	closeAll(ranks)
	c.close()
}

// TestPlanCopiesWarmSamplesToFasterClasses checks that the plan has faster classes hold samples
// that a class that keeps everything already has, and that the source is not read for that.
func TestPlanCopiesWarmSamplesToFasterClasses(t *testing.T) {
	w := world{disk: t.TempDir()}
	n := w.node()
	m := message(0, 1, set("cache_dir", w.disk), set("cache_size", "1MB"))
	r := open(t, n, m)
	consume(t, r, at{0, 0}, at{1, 0})
	r.Close()
	w.close(t, n)
	w.ram = nil
	w.bytes.Store(0)
	n = w.node()
	r = open(t, n, m)
	if disk := r.entry.dataset.Classes()[1]; len(disk.Store.Held()) != samples || !disk.KeepsAll {
		t.Errorf("of %d samples on disk %d are held; keeps all: %v", samples,
			len(disk.Store.Held()), disk.KeepsAll)
	}
	if planned := r.entry.open.Job.Planner().Plan().Nodes[0].Classes; len(planned[0]) != samples {
		t.Errorf("memory is planned to hold %v", planned[0])
	}
	consume(t, r, at{0, 0}, at{1, 0})
	if got := w.bytes.Load(); got != 0 {
		t.Errorf("%d bytes left the source again", got)
	}
	r.Close()
	w.close(t, n)
}

// TestWindowCoversStagedSteps checks that a window does not end before a step that a rank was
// allowed to stage.
func TestWindowCoversStagedSteps(t *testing.T) {
	c := newNodes(t, 2, false)
	c.list[0].options.Strategy.AtOnce = -1
	ranks := c.open(set("memory", "22000B"), set("prefetch_batches", 1.0), func(m *request.Open) {
		m.Stream.GlobalBatch = 2
	})
	p := ranks[0].entry.open.Job.Planner()
	if err := p.Begin(0, 0); err != nil {
		t.Fatal(err)
	}
	if err := p.Gate()(t.Context(), 0, 14); err != nil {
		t.Fatal(err)
	}
	consume(t, ranks[0], at{0, 0}, at{0, 1})
	o := ranks[1].entry.open.Coordinator
	windows, err := o.BootstrapWindows(t.Context(), plan.BootstrapWindow{Steps: 1}, 20)
	if err != nil || windows[0].Steps < 15 {
		t.Errorf("the windows are %+v, but step 14 may be staged; %v", windows, err)
	}
	if err := o.Planned(t.Context()); err != nil {
		t.Error(err)
	}
	<-p.Done()
	closeAll(ranks)
	c.close()
}
