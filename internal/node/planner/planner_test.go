package planner

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const samples = 40

// node is the first of a job's three nodes; the test plays the others.
type node struct {
	windows []plan.BootstrapWindow // of the other nodes
	gone    []int
	planned func() error // called while the others are waited for; may be nil
	lost    error        // of Capacities

	mu       sync.Mutex
	reported plan.Node            // as passed to Capacities
	window   plan.BootstrapWindow // as passed to BootstrapWindows
	owner    func(id int) int     // in force
	kept     [][]int32            // in force
	note     func(node int, there bool)
}

func (n *node) Capacities(_ context.Context, mine plan.Node) ([]plan.Node, error) {
	n.reported = mine
	if n.lost != nil {
		return nil, n.lost
	}
	nodes := make([]plan.Node, 3)
	for i := range nodes {
		nodes[i] = plan.Node{
			Ranks:    []int{i},
			Capacity: mine.Capacity,
			Held:     make([][]int32, len(mine.Capacity)),
		}
	}
	return nodes, nil
}

func (n *node) BootstrapWindows(_ context.Context, mine plan.BootstrapWindow,
	_ int,
) ([]plan.BootstrapWindow, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.window = mine
	return append([]plan.BootstrapWindow{mine}, n.windows...), nil
}

func (n *node) Planned(context.Context) error {
	if n.planned != nil {
		return n.planned()
	}
	return nil
}

func (n *node) Watch(note func(int, bool)) {
	n.note = note
	for _, gone := range n.gone {
		note(gone, false)
	}
}

func (n *node) SetOwner(owner func(id int) int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.owner = owner
}

func (n *node) Keep(classes [][]int32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.kept = classes
}

func (n *node) Fill([][]int32, func(int64)) {}

func (n *node) Filled(context.Context, func(bytes, of int64)) error { return nil }

func (n *node) Preloaded(context.Context) error { return nil }

// held is a policy whose Plan waits for the test.
type held struct {
	policies.Cooperative
	begun, free chan struct{}
}

func (h held) Plan(in plan.Input) (*plan.Plan, error) {
	close(h.begun)
	<-h.free
	return h.Cooperative.Plan(in)
}

func start(t *testing.T, n *node, policy plan.Policy, change ...func(*Options)) *Planner {
	t.Helper()
	p, err := New(t.Context(), options(t, n, policy, change...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func options(t *testing.T, n *node, policy plan.Policy, change ...func(*Options)) Options {
	t.Helper()
	stream, err := access.New(access.Spec{
		Samples: samples, Epochs: 4, WorldSize: 3, GlobalBatch: 3, Shuffle: access.Torch,
		Scheme: access.Strided, Tail: access.Pad,
	})
	if err != nil {
		t.Fatal(err)
	}
	o := Options{
		Local: Local{
			Strategy: Strategy{
				Policy: func(string) (plan.Policy, error) { return policy, nil },
				AtOnce: -1,
			},
			Classes: []Class{{Capacity: 14000}}, Nodes: n,
		},
		Stream: stream, Size: func(int) int64 {
			return 1000
		}, Needed: func(c [][]int32) [][]int32 { return c },
		Use: n, Read: func(int64) {},
		Staged: func() int { return 1 }, Ahead: 1,
		Admit: func(int64) error {
			return nil
		}, Fail: func(err error) { t.Error(err) }, Log: slog.New(slog.DiscardHandler),
	}
	for _, c := range change {
		c(&o)
	}
	return o
}

// TestRanksWaitAtTheEndOfTheWindow checks that without a plan ranks may read up to the end of the
// longest window of all nodes, and wait there for the plan.
func TestRanksWaitAtTheEndOfTheWindow(t *testing.T) {
	n := &node{windows: []plan.BootstrapWindow{{Step: 1, Steps: 3}, {Step: 1, Steps: 9}}}
	policy := held{begun: make(chan struct{}), free: make(chan struct{})}
	p := start(t, n, policy)
	if err := p.Begin(0, 1); err != nil {
		t.Fatal(err)
	}
	gate := p.Gate()
	if err := gate(t.Context(), 0, 1); err != nil {
		t.Errorf("the first step: %v", err)
	}
	p.Feeds(0)
	<-policy.begun
	p.bootstrap.mu.Lock()
	end := p.bootstrap.end
	p.bootstrap.mu.Unlock()
	if end < 1+9 || end > 1+p.bootstrap.in.Stream.Steps() {
		t.Errorf("the window ends at step %d", end)
	}
	waits := make(chan error, 1)
	go func() { waits <- gate(t.Context(), 0, end) }()
	if err := gate(t.Context(), 0, end-1); err != nil {
		t.Errorf("the last step of the window: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := gate(ctx, 0, end); !errors.Is(err, context.Canceled) {
		t.Errorf("the step after the window, cancelled: %v", err)
	}
	if !p.Planning() {
		t.Error("Planning reports that there is a plan")
	}
	select {
	case err := <-waits:
		t.Errorf("the step after the window did not wait: %v", err)
	default:
	}
	close(policy.free)
	if err := <-waits; err != nil {
		t.Errorf("the step after the window: %v", err)
	}
	if p.Planning() {
		t.Error("Planning reports that there is no plan")
	}
}

// TestWindowBeginsWhereTheFirstRankBegins checks that the other nodes receive where the first rank
// began to read, wherever later ones begin.
func TestWindowBeginsWhereTheFirstRankBegins(t *testing.T) {
	n := &node{
		windows: []plan.BootstrapWindow{
			{Epoch: 1, Step: 2, Steps: 4},
			{Epoch: 1, Step: 2, Steps: 4},
		},
	}
	p := start(t, n, policies.Cooperative{})
	for _, step := range []int{2, 0, 5} {
		if err := p.Begin(1, step); err != nil {
			t.Fatal(err)
		}
	}
	p.Feeds(0)
	<-p.Done()
	if n.window.Epoch != 1 || n.window.Step != 2 || n.window.Steps < 1 {
		t.Errorf("the window is %+v", n.window)
	}
}

// TestRequestsWaitUntilTheNodeHasBegun checks that requests for samples wait while a node has no
// plan and its ranks have not begun, because it does not know yet what it is to keep.
func TestRequestsWaitUntilTheNodeHasBegun(t *testing.T) {
	n := &node{windows: []plan.BootstrapWindow{{Steps: 1}, {Steps: 1}}}
	p := start(t, n, policies.Cooperative{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if once, err := p.ReadsOnce(ctx); once || !errors.Is(err, context.Canceled) {
		t.Errorf("before the node has begun: %v, %v", once, err)
	}
	waits := make(chan bool)
	go func() {
		once, err := p.ReadsOnce(t.Context())
		waits <- once && err == nil
	}()
	if err := p.Begin(0, 0); err != nil {
		t.Fatal(err)
	}
	if !<-waits {
		t.Error("the node does not read for others after it has begun")
	}
}

// TestRemoteReadsNeedAPlanThatReadsOnce checks that no node reads for another one under a policy
// that keeps nothing.
func TestRemoteReadsNeedAPlanThatReadsOnce(t *testing.T) {
	for name, want := range map[string]bool{"cooperative": true, "staging": false} {
		policy, err := policies.ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		p := start(t, &node{}, policy, func(o *Options) { o.AtOnce = 0 })
		if once, err := p.ReadsOnce(t.Context()); once != want || err != nil {
			t.Errorf("%s: %v, %v", name, once, err)
		}
	}
}

// TestPlanMayCopyFromAClassThatKeepsAll checks that samples in a class that keeps everything are
// reported as kept, not held, so that the plan may copy them to faster classes.
func TestPlanMayCopyFromAClassThatKeepsAll(t *testing.T) {
	n := &node{}
	all := slices.Collect(func(yield func(int32) bool) {
		for id := range int32(samples) {
			if !yield(id) {
				return
			}
		}
	})
	p := start(t, n, policies.Cooperative{}, func(o *Options) {
		o.AtOnce, o.Classes = 0,
			[]Class{{Capacity: 60000, Held: []int32{3}}, {Capacity: 60000, Held: all, KeepsAll: true}}
	})
	if p.Gate() != nil || p.Planning() {
		t.Error("a quick plan is not made at once")
	}
	if len(n.reported.Kept) != samples || !slices.Equal(n.reported.Held[0], []int32{3}) ||
		len(n.reported.Held[1]) != 0 {
		t.Errorf("Capacities was called with %+v", n.reported)
	}
	if p.Capacity() != 3*120000 {
		t.Errorf("the capacity of all classes is %d bytes", p.Capacity())
	}
	if len(n.kept) != 2 || len(n.kept[0]) == 0 || !slices.Contains(n.kept[0], 3) {
		t.Errorf("%v are kept", n.kept)
	}
}

// TestLostNodesOwnNothing checks that nodes that are gone own no samples, whether they left before
// there was a plan or after.
func TestLostNodesOwnNothing(t *testing.T) {
	n := &node{gone: []int{1}}
	start(t, n, policies.Cooperative{}, func(o *Options) { o.AtOnce = 0 })
	owned := func(node int) (sum int) {
		n.mu.Lock()
		defer n.mu.Unlock()
		for id := range samples {
			if n.owner(id) == node {
				sum++
			}
		}
		return sum
	}
	if owned(1) != 0 || owned(2) == 0 {
		t.Errorf("node 1 is gone and owns %d samples, node 2 owns %d", owned(1), owned(2))
	}
	n.note(1, true)
	n.note(2, false)
	if owned(1) == 0 || owned(2) != 0 {
		t.Errorf("node 1 is back and owns %d samples, node 2 is gone and owns %d", owned(1),
			owned(2))
	}
}
