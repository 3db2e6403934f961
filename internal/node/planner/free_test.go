package planner

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hdmlp/hdmlp/internal/plan"
)

// TestFree: what a plan withholds of a class counts, unless nodes hold what is read all the same,
// the class keeps everything in any case, or it is next to nothing.
func TestFree(t *testing.T) {
	const size, all = 10, 100 // bytes of a sample, and of ten
	plan := func(withheld []int64) *plan.Plan {
		return &plan.Plan{
			Owner: []int32{0, 0, 1, none, none, none, none, none, none, none},
			Nodes: []plan.NodePlan{
				{Classes: [][]int32{{0}, {1}}, Withheld: withheld}, {Classes: [][]int32{{2}, nil}},
			},
		}
	}
	for name, c := range map[string]struct {
		withheld []int64
		me       int
		keeps    bool // whether the second class keeps everything
		needed   int64
		want     []int64
	}{
		"both classes":              {withheld: []int64{20, 40}, needed: all, want: []int64{20, 40}},
		"next to nothing":           {withheld: []int64{2, 40}, needed: all, want: []int64{0, 40}},
		"of the other node":         {withheld: []int64{20, 40}, me: 1, needed: all},
		"of no node":                {needed: all},
		"nodes hold what is needed": {withheld: []int64{20, 40}, needed: 31},
		"a node that is not there":  {withheld: []int64{20, 40}, me: 2, needed: all},
		"one keeps everything": {
			withheld: []int64{20, 40}, keeps: true, needed: all, want: []int64{20, 0},
		},
	} {
		p := &Planner{done: make(chan struct{}), o: Options{
			Local: Local{
				Me: c.me, Classes: []Class{{Capacity: 50}, {Capacity: 50, KeepsAll: c.keeps}},
			},
			Size: func(int) int64 { return size },
		}}
		if p.Free(c.needed) != nil {
			t.Errorf("%s: there is no plan yet", name)
		}
		p.plan.Store(plan(c.withheld))
		if p.Free(c.needed) != nil {
			t.Errorf("%s: the plan is not the one that is still made", name)
		}
		close(p.done)
		if diff := cmp.Diff(p.Free(c.needed), c.want); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
