package planner

import (
	"slices"
	"testing"

	"github.com/hdmlp/hdmlp/internal/plan"
)

// TestFailoverFollowsLiveNodes checks that the adapted plan has owners that are alive, whether
// others left before there was a plan or after, and after a change of plan.
func TestFailoverFollowsLiveNodes(t *testing.T) {
	planned := func(owner ...int32) *plan.Plan {
		p := &plan.Plan{
			Remote:   true,
			ReadOnce: true,
			Owner:    owner,
			Nodes:    make([]plan.NodePlan, 3),
		}
		for n := range p.Nodes {
			p.Nodes[n].Classes = make([][]int32, 1)
		}
		return p
	}
	nodes := slices.Repeat([]plan.Node{{Capacity: []int64{10}}}, 3)
	var r failover
	var owners []int32
	follow := func(p *plan.Plan) {
		r.follow(p, nodes, func(int) int64 {
			return 1
		}, func(now *plan.Plan) { owners = now.Owner })
	}
	check := func(when string, want ...func(int32) bool) {
		t.Helper()
		for k, ok := range want {
			if !ok(owners[k]) {
				t.Errorf("%s: owners are %v", when, owners)
			}
		}
	}
	is := func(n int32) func(int32) bool { return func(o int32) bool { return o == n } }
	not1 := func(o int32) bool { return o == 0 || o == 2 }

	r.note(1, false) // nothing is known yet
	follow(planned(0, 1, 2))
	check("gone before there was a plan", is(0), not1, is(2))
	r.note(1, true)
	check("back", is(0), is(1), is(2))
	r.note(1, false)
	check("gone", is(0), not1, is(2))
	follow(planned(1, 2, 0))
	check("another plan", not1, is(2), is(0))
	r.note(2, false)
	check("two are gone", is(0), is(0), is(0))
	r.note(1, true)
	check("one is back", is(1), func(o int32) bool { return o == 0 || o == 1 }, is(0))
	r.note(2, true)
	check("both are back", is(1), is(2), is(0))
}
