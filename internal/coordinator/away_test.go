package coordinator

import (
	"slices"
	"testing"

	"github.com/hdmlp/hdmlp/internal/proctest"
)

// settles fails the test unless both functions of a Vacate are called.
func settles(t *testing.T, c *Coordinator, samples ...int32) {
	t.Helper()
	calls := 0
	c.Vacate(0, 0, samples, func() { calls++ }, func() { calls++ })
	if calls != 2 || c.Delay() != 0 {
		t.Error("the coordinator keeps a segment")
	}
}

// TestOtherNodesLearnWhatWasGivenBack checks that the other nodes do not ask a node for samples
// that it gave back, until there is room again, and that invalid sets are ignored.
func TestOtherNodesLearnWhatWasGivenBack(t *testing.T) {
	all := formed(t, 3)
	for _, c := range all {
		c.SetOwner(func(int) int { return 1 })
	}
	asks := func(want bool, ids ...int) func() bool {
		return func() bool {
			return !slices.ContainsFunc([]*Coordinator{all[0], all[2]}, func(c *Coordinator) bool {
				return slices.ContainsFunc(ids, func(id int) bool {
					_, asked := c.Peers().Arrival(id, 1000, 0)
					return asked != want
				})
			})
		}
	}
	proctest.Until(t, "node 1 is asked", asks(true, 0, 3, 39))
	settles(t, all[1], 3, 39)
	proctest.Until(t, "it is not asked for two samples", asks(false, 3, 39))
	settles(t, all[1], 0)
	proctest.Until(t, "it is not asked for three samples", asks(false, 0, 3, 39))
	if !asks(true, 1, 2, 38)() {
		t.Error("node 1 is not asked for samples that it holds")
	}
	_, version := all[1].away.get()
	settles(t, all[1]) // a segment whose samples were dropped or moved for a new plan
	if _, now := all[1].away.get(); now != version {
		t.Error("the other nodes are told of samples that went for a new plan")
	}
	all[1].Refill()
	proctest.Until(t, "it is asked again", asks(true, 0, 3, 39))
	all[1].Refill() // nothing has changed
	for _, text := range []string{
		"", "{", `{"node":9}`, `{"node":-1}`, `{"node":1,"from":3}`,
		`{"node":1,"version":9,"from":40,"bits":"AAAA"}`,
	} {
		if all[0].answerAway(t.Context(), text) != nil {
			t.Errorf("%q was accepted", text)
		}
	}
	if !asks(true, 0, 3, 39)() {
		t.Error("an invalid set has an effect")
	}
}
