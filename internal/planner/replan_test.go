package planner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/hdmlp/hdmlp/internal/access"
	"github.com/hdmlp/hdmlp/internal/perfmodel"
	"github.com/hdmlp/hdmlp/internal/placement"
	"github.com/hdmlp/hdmlp/internal/placement/policies"
	"github.com/hdmlp/hdmlp/internal/placement/replan"
)

// fleet is all nodes of a job, each with its planner. They tell each other what a real cluster
// would carry.
type fleet struct {
	t       *testing.T
	members []*member

	mu     sync.Mutex
	rounds map[string]*gathering
	cut    map[string]int // by name of a gathering, the node that does not learn its result
	gone   map[int]bool   // nodes that take part in none
}

// gathering has what nodes have said so far.
type gathering struct {
	said map[int]any
	done chan struct{}
}

// member is a node.
type member struct {
	fleet   *fleet
	me      int
	planner *Planner
	note    func(node int, there bool)

	mu    sync.Mutex
	known perfmodel.Node
	did   []string // by its planner, in order: keep, release, fill
	kept  [][]int32
	owner func(id int) int
}

// gather waits until all nodes that are there have said something.
func gather[T any](ctx context.Context, m *member, what string, mine T) ([]T, error) {
	f := m.fleet
	f.mu.Lock()
	g := f.rounds[what]
	if g == nil {
		g = &gathering{make(map[int]any), make(chan struct{})}
		f.rounds[what] = g
	}
	g.said[m.me] = mine
	if len(g.said)+len(f.gone) == len(f.members) {
		close(g.done)
	}
	f.mu.Unlock()
	select {
	case <-g.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if at, is := f.cut[what]; len(f.gone) > 0 || is && at == m.me {
		return nil, errors.New("not all nodes took part")
	}
	var all []T
	for n := range f.members {
		all = append(all, g.said[n].(T))
	}
	return all, nil
}

func (m *member) Capacities(ctx context.Context, mine placement.Node) ([]placement.Node, error) {
	mine.Ranks = []int{m.me}
	return gather(ctx, m, "capacities", mine)
}

func (m *member) BootstrapWindows(ctx context.Context, mine placement.BootstrapWindow,
	_ int,
) ([]placement.BootstrapWindow, error) {
	return gather(ctx, m, "windows", mine)
}

func (m *member) Planned(ctx context.Context) error {
	_, err := gather(ctx, m, "planned", 0)
	return err
}

func (m *member) Reassess(ctx context.Context, round int,
	mine placement.Report,
) ([]placement.Report, error) {
	mine.Node.Ranks = []int{m.me}
	return gather(ctx, m, fmt.Sprint("reports ", round), mine)
}

func (m *member) Vote(ctx context.Context, round int,
	mine placement.Vote,
) ([]placement.Vote, error) {
	return gather(ctx, m, fmt.Sprint("votes ", round), mine)
}

func (m *member) Watch(note func(int, bool)) { m.note = note }

func (m *member) SetOwner(owner func(id int) int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.owner = owner
}

func (m *member) Keep(classes [][]int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kept, m.did = classes, append(m.did, "keep")
}

func (m *member) Release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.did = append(m.did, "release")
}

func (m *member) Fill([][]int32, func(int64)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.did = append(m.did, "fill")
}

const fleetSamples, fleetBytes = 300, 100_000

func (m *member) options() Options {
	stream, err := access.New(access.Spec{
		Samples: fleetSamples, Seed: 7, Epochs: 40, WorldSize: len(m.fleet.members),
		GlobalBatch: 30, Scheme: access.Uniform, Tail: access.Keep,
	})
	if err != nil {
		m.fleet.t.Fatal(err)
	}
	return Options{
		Strategy: Strategy{AtOnce: 1e12}, Name: "cooperative", Stream: stream,
		Size: func(int) int64 { return fleetBytes }, Needed: func(c [][]int32) [][]int32 { return c },
		Classes: []Class{{Capacity: 1e6}, {Capacity: 30e6}}, Use: m, Read: func(int64) {}, Me: m.me,
		Nodes: m, Admit: func(int64) error { return nil }, Log: slog.New(slog.DiscardHandler),
		Known: func() perfmodel.Node {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.known
		},
		Staged: func() int { return 1 }, Ahead: 1, Fail: func(err error) { m.fleet.t.Error(err) },
	}
}

// newFleet returns nodes whose source is fast and whose disk is slow, so that they hardly use it.
func newFleet(t *testing.T, nodes int, change ...func(*Options)) *fleet {
	f := &fleet{
		t: t, rounds: make(map[string]*gathering), cut: make(map[string]int),
		gone: make(map[int]bool),
	}
	for n := range nodes {
		f.members = append(f.members, &member{fleet: f, me: n})
	}
	f.measure(1000, 20, 3000)
	var all sync.WaitGroup
	for _, m := range f.members {
		all.Go(func() {
			o := m.options()
			for _, c := range change {
				c(&o)
			}
			var err error
			if m.planner, err = New(t.Context(), o); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	return f
}

// measure sets what nodes know: the rates of links, disks and source, in MB/s.
func (f *fleet) measure(network, class, source float64) {
	for n, m := range f.members {
		m.mu.Lock()
		m.known = tiers(n, perfmodel.Measured, network, class, source)
		m.mu.Unlock()
	}
}

// begin has all nodes begin an epoch, and waits until they do nothing more.
func (f *fleet) begin(epoch int, nodes ...*member) {
	if nodes == nil {
		nodes = f.members
	}
	for _, m := range nodes {
		m.planner.Reached(epoch)
	}
	synctest.Wait()
}

func (f *fleet) close() {
	for _, m := range f.members {
		m.planner.Close()
	}
}

// TestAllNodesAdoptTheSamePlanInTheSameEpoch: it is the plan that the pure decision returns, from
// the epoch on that comes after the last that any node has begun.
func TestAllNodesAdoptTheSamePlanInTheSameEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3)
		defer f.close()
		first := f.members[0].planner.Plan()
		f.begin(0)
		f.measure(1000, 20, 3)
		f.begin(1, f.members[:2]...)
		f.begin(3, f.members[2])
		reports := f.rounds["reports 0"].said
		q := replan.Question{Policy: policies.Cooperative{}, Plan: first, Transformers: []int{0, 0, 0}}
		var nodes []placement.Node
		for n := range f.members {
			nodes = append(nodes, reports[n].(placement.Report).Node)
		}
		q.Input = f.members[1].planner.input(4, nodes)
		q.Input.Agree()
		want, plan, err := replan.Decide(q)
		if want.Epoch = 3; err != nil || !want.Adopted || want.From != 4 {
			t.Fatalf("the decision is %+v, %v", want, err)
		}
		for n, m := range f.members {
			if got := m.planner.Replanned(); len(got) != 1 || got[0] != want {
				t.Errorf("node %d decided %+v, want %+v", n, got, want)
			}
			if m.planner.Plan() != first && !cmp.Equal(m.planner.Plan(), first) {
				t.Errorf("node %d follows the new plan before epoch 4", n)
			}
			f.begin(4, m)
			if diff := cmp.Diff(plan, m.planner.Plan()); diff != "" {
				t.Errorf("node %d follows another plan: %s", n, diff)
			}
			if want := []string{"keep", "fill", "keep", "release", "fill"}; !slices.Equal(m.did, want) {
				t.Errorf("node %d: %v, want %v", n, m.did, want)
			}
			if !cmp.Equal(m.kept, plan.Nodes[n].Classes) || m.owner(5) != plan.OwnerOf(5) {
				t.Errorf("node %d keeps %v", n, m.kept)
			}
			if diff := cmp.Diff(q.Input.Env, m.planner.Environment()); diff != "" {
				t.Errorf("node %d has another environment: %s", n, diff)
			}
		}
		// The nodes that are left take over by the new plan.
		f.members[0].note(2, false)
		for k := range fleetSamples {
			if f.members[0].owner(k) == 2 {
				t.Fatalf("node 2 is gone and owns sample %d", k)
			}
		}
	})
}

// TestEpochHasBegunAlready: a node that has begun the epoch by the time of the decision adopts the
// plan at once.
func TestEpochHasBegunAlready(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2)
		defer f.close()
		f.begin(0)
		f.measure(1000, 20, 3)
		f.begin(1, f.members[0])
		f.begin(2, f.members[0])
		f.begin(1, f.members[1])
		first, second := f.members[0].planner.Plan(), f.members[1].planner.Plan()
		if first.Fingerprint() == second.Fingerprint() {
			t.Errorf("node 0 is in epoch 2 and does not follow the plan: %+v",
				f.members[0].planner.Replanned())
		}
		f.begin(2, f.members[1])
		if got := f.members[1].planner.Plan(); got.Fingerprint() != first.Fingerprint() {
			t.Error("node 1 follows another plan")
		}
	})
}

// TestRoundsAreOneTwoFourEpochsAfterTheFirst counts rounds.
func TestRoundsAreOneTwoFourEpochsAfterTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2)
		defer f.close()
		var epochs []int
		for epoch := 5; epoch < 20; epoch++ {
			f.begin(epoch)
		}
		for _, round := range f.members[0].planner.Replanned() {
			epochs = append(epochs, round.Epoch)
			if round.Adopted || round.Why != replan.Equal {
				t.Errorf("nothing has changed, and the outcome is %+v", round)
			}
		}
		if want := []int{6, 7, 9, 13}; !slices.Equal(epochs, want) {
			t.Errorf("rounds in epochs %v, want %v", epochs, want)
		}
	})
}

// TestNoPlanWithoutAllNodes: nodes that are gone, known to be gone, or cannot make the plan prevent
// another one.
func TestNoPlanWithoutAllNodes(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Options)
		before func(f *fleet)
		why    string
	}{
		"gone": {before: func(f *fleet) { f.gone[1] = true }, why: "not all nodes took part"},
		"known to be gone": {
			before: func(f *fleet) { f.members[0].note(1, false) },
			why:    "node 0 cannot follow it: a node is gone",
		},
		"without memory": {
			change: func(o *Options) {
				first, me := true, o.Me
				o.Admit = func(int64) error {
					if first || me != 1 {
						first = false
						return nil
					}
					return errors.New("too little memory")
				}
			}, why: "node 1 cannot follow it: too little memory",
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			var change []func(*Options)
			if c.change != nil {
				change = append(change, c.change)
			}
			f := newFleet(t, 2, change...)
			defer f.close()
			first := f.members[0].planner.Plan()
			if c.before != nil {
				c.before(f)
			}
			f.measure(1000, 20, 3)
			f.begin(0)
			f.begin(1, slices.DeleteFunc(slices.Clone(f.members), func(m *member) bool {
				return f.gone[m.me]
			})...)
			got := f.members[0].planner.Replanned()
			if len(got) != 1 || got[0].Adopted || !strings.Contains(got[0].Why, c.why) ||
				f.members[0].planner.Plan() != first {
				t.Errorf("%s: %+v", name, got)
			}
		})
	}
}

// TestDifferentPlansAreReconciled: a node that does not learn of the others' votes remains with the
// old plan; after the next round all follow the same one.
func TestDifferentPlansAreReconciled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3)
		defer f.close()
		f.cut["votes 0"] = 1
		f.begin(0)
		f.measure(1000, 20, 3)
		f.begin(1)
		f.begin(2) // and the second round
		plans := func() (all []uint64) {
			for _, m := range f.members {
				all = append(all, m.planner.Plan().Fingerprint())
			}
			return all
		}
		if p := plans(); p[0] == p[1] || p[0] != p[2] {
			t.Errorf("node 1 is cut off, and the plans are %x", p)
		}
		f.begin(3)
		if p := plans(); p[0] != p[1] || p[0] != p[2] {
			t.Errorf("after the second round the plans are %x", p)
		}
	})
}

// TestJobEndsDuringARound: a planner can be closed while other nodes are awaited, and while a plan
// waits for its epoch.
func TestJobEndsDuringARound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2)
		f.begin(0)
		f.begin(1, f.members[0])
		f.close()
		if got := f.members[0].planner.Replanned(); got != nil {
			t.Errorf("a round that did not end has the outcome %+v", got)
		}
		f = newFleet(t, 2)
		f.begin(0)
		f.measure(1000, 20, 3)
		f.begin(1)
		first := f.members[0].planner.Plan()
		f.close()
		if got := f.members[0].planner; !got.Replanned()[0].Adopted || got.Plan() != first {
			t.Errorf("the outcome is %+v", got.Replanned())
		}
	})
}

// TestNoRoundsBeforeTheFirstPlan: while a node still makes its first plan, nothing is decided; one
// node alone decides as several do.
func TestNoRoundsBeforeTheFirstPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, func(o *Options) { o.AtOnce = -1 })
		defer f.close()
		f.begin(0)
		f.begin(1)
		if got := f.members[0].planner.Replanned(); len(got) != 1 ||
			got[0].Why != "node 0 is still making its first plan" {
			t.Errorf("the outcome is %+v", got)
		}
		alone := newFleet(t, 1, func(o *Options) { o.Nodes = nil })
		defer alone.close()
		first := alone.members[0].planner.Plan()
		alone.begin(0)
		alone.measure(1000, 20, 3)
		alone.begin(1)
		alone.begin(2)
		if m := alone.members[0]; !m.planner.Replanned()[0].Adopted || m.planner.Plan() == first {
			t.Errorf("the outcome is %+v", m.planner.Replanned())
		}
	})
}

// TestPoliciesThatNeverReplan have no rounds: they keep what is read first, or nothing; nor have
// jobs whose future is not known.
func TestPoliciesThatNeverReplan(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"minio":          func(o *Options) { o.Name = "minio" },
		"partitioned":    func(o *Options) { o.Name = "partitioned" },
		"staging":        func(o *Options) { o.Name = "staging" },
		"naive":          func(o *Options) { o.Name = "naive" },
		"turns":          func(o *Options) { o.Turns = true },
		"nothing known":  func(o *Options) { o.Known = nil },
		"a given stream": func(o *Options) { o.Stream = given(t) },
	} {
		f := newFleet(t, 1, change, func(o *Options) { o.Nodes = nil })
		f.members[0].planner.Reached(0)
		f.members[0].planner.Reached(1)
		if p := f.members[0].planner; p.rounds != nil || p.Replanned() != nil {
			t.Errorf("%s: there are rounds", name)
		}
		f.close()
	}
}

func given(t *testing.T) *access.Stream {
	s, err := access.NewGiven(fleetSamples, []int32{10, 10}, 4)
	if err == nil {
		err = s.Give(0, make([]int32, 20))
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}
