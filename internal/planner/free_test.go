package planner

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hdmlp/hdmlp/internal/placement"
)

// TestFree: what a plan leaves free of a node's classes counts, unless nodes hold what is read, the
// class keeps everything in any case, or it is next to nothing.
func TestFree(t *testing.T) {
	const size, all = 10, 100 // bytes of a sample, and of ten
	two := placement.Plan{
		Owner: []int32{0, 0, 1, none, none, none, none, none, none, none},
		Nodes: []placement.NodePlan{{Classes: [][]int32{{0}, {1}}}, {Classes: [][]int32{{2}, nil}}},
	}
	onRead, ownerless, full := two, two, two
	onRead.OnRead, ownerless.Owner = true, nil
	full.Owner = make([]int32, all/size)
	for name, c := range map[string]struct {
		plan   *placement.Plan
		me     int
		keeps  bool  // whether the second class keeps everything
		first  int64 // capacity of the first class
		needed int64
		want   []int64
	}{
		"both classes":      {plan: &two, first: 30, needed: all, want: []int64{20, 40}},
		"of the other node": {plan: &two, me: 1, first: 30, needed: all, want: []int64{20, 50}},
		"one keeps everything": {
			plan: &two, keeps: true, first: 30, needed: all, want: []int64{20, 0},
		},
		"one is full":               {plan: &two, first: 10, needed: all, want: []int64{0, 40}},
		"nodes hold what is needed": {plan: &two, first: 30, needed: 31},
		"nodes hold everything":     {plan: &full, first: 30, needed: all},
		"what is read first stays":  {plan: &onRead, first: 30, needed: all},
		"nobody owns":               {plan: &ownerless, first: 30, needed: all},
		"a node that joined later":  {plan: &two, me: 2, first: 30, needed: all},
	} {
		p := &Planner{o: Options{
			Me: c.me, Size: func(int) int64 { return size },
			Classes: []Class{{}, {KeepsAll: c.keeps}},
		}}
		nodes := []placement.Node{{Capacity: []int64{c.first, 50}}, {Capacity: []int64{c.first, 50}}}
		p.free.Store(p.freeBy(c.plan, nodes))
		if diff := cmp.Diff(p.Free(c.needed), c.want); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if nodes[0].Capacity[0] != c.first {
			t.Errorf("%s: it has changed the capacities", name)
		}
	}
	if (&Planner{}).Free(all) != nil {
		t.Error("there is no plan yet")
	}
}
