package planner

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
	"github.com/hdmlp/hdmlp/internal/plan/replan"
)

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
		var nodes []plan.Node
		for n := range f.members {
			nodes = append(nodes, reports[n].(plan.Report).Node)
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
			if !cmp.Equal(plan, m.planner.Plan()) {
				t.Errorf("node %d follows another plan", n)
			}
			if want := []string{"keep", "fill", "keep", "release", "fill"}; !slices.Equal(m.did, want) {
				t.Errorf("node %d: %v, want %v", n, m.did, want)
			}
			if !cmp.Equal(m.kept, plan.Nodes[n].Classes) || m.owner(5) != plan.OwnerOf(5) {
				t.Errorf("node %d keeps other samples", n)
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
			why:    `node 0 cannot follow it: "a node is gone"`,
		},
		"with another plan": {
			before: func(f *fleet) { f.other[1] = true },
			why:    "node 1 decided otherwise",
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
			}, why: `node 1 cannot follow it: "too little memory"`,
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

// TestWorseIsNoticed: a new plan with which epochs take longer than before, which the model does
// not explain, is replaced by the one before, once. One with which they take less stays.
func TestWorseIsNoticed(t *testing.T) {
	for name, c := range map[string]struct {
		after float64 // seconds that epochs take with the new plan
		back  bool
	}{"worse": {12, true}, "better": {4, false}} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, 2)
			defer f.close()
			first := f.members[0].planner.Plan()
			f.takes(0, 3, 9)
			f.begin(0)
			f.begin(1)
			f.measure(1000, 20, 3)
			f.takes(3, 40, c.after)
			f.takes(5, 6, 100) // a single epoch is no measure
			for epoch := 2; epoch < 33; epoch++ {
				f.begin(epoch)
			}
			for n, m := range f.members {
				rounds, plan := m.planner.Replanned(), m.planner.Plan()
				if len(rounds) != 6 || !rounds[1].Adopted || rounds[1].Took != 9 {
					t.Fatalf("%s: node %d decided %+v", name, n, rounds)
				}
				judged := rounds[3]
				if judged.Took != c.after || judged.Before != 9 || judged.Adopted != c.back ||
					c.back && judged.Why != replan.Wrong {
					t.Errorf("%s: node %d judged the new plan by %+v", name, n, judged)
				}
				if back := plan.Fingerprint() == first.Fingerprint(); back != c.back {
					t.Errorf("%s: node %d follows the first plan: %v; %+v", name, n, back, rounds)
				}
			}
		})
	}
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

// TestPlanForFewerReadsStaysWhileEpochsTakeAsLong: if the training is slower than a disk that the
// first plan left free, because the source is faster, the disk is filled as soon as a time of
// epochs is measured. If they become longer, although the model explains it, the first plan is
// followed again, for good.
func TestPlanForFewerReadsStaysWhileEpochsTakeAsLong(t *testing.T) {
	for name, c := range map[string]struct {
		after float64 // seconds that epochs take with the new plan
		back  bool
	}{"longer": {8.8, true}, "as long": {8, false}} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, 2)
			defer f.close()
			for _, m := range f.members {
				m.mu.Lock()
				m.known.Compute = model.Value{Number: 2, Origin: model.Measured}
				m.mu.Unlock()
			}
			first := f.members[0].planner.Plan().Fingerprint()
			f.takes(0, 3, 8)
			f.takes(3, 40, c.after)
			for epoch := range 33 {
				f.begin(epoch)
			}
			for n, m := range f.members {
				rounds, plan := m.planner.Replanned(), m.planner.Plan().Fingerprint()
				if len(rounds) != 6 || rounds[0].Adopted || !rounds[1].Adopted || rounds[1].Spared < 10e6 {
					t.Fatalf("%s: node %d decided %+v", name, n, rounds)
				}
				if (plan == first) != c.back || rounds[3].Adopted != c.back || rounds[5].Adopted {
					t.Errorf("%s: node %d decided %+v", name, n, rounds)
				}
			}
		})
	}
}
