package replay

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hdmlp/hdmlp/internal/model/routing/routingtest"
)

// TestRoutingOfStates: the way of a read depends on what it should, by any reads before it. Package
// cache has the same test.
func TestRoutingOfStates(outer *testing.T) {
	rapid.Check(outer, func(t *rapid.T) {
		s := routingtest.Draw(t, 1e6)
		n := stateNode(outer, &s)
		n.c.events.now = s.Now.Seconds()
		from, reference := time.Unix(0, 0), routingtest.NewMeters()
		s.Play(from, reference)
		s.Play(from, routingtest.Meters{
			Class: &n.files[0], Source: &n.source, Others: &n.remote, Owner: &n.peers[1].meter,
			Circuit: &n.peers[1].Circuit,
		})
		r := request{peers: !s.Remote, remote: s.Remote, due: s.Seconds}
		if math.IsInf(s.Seconds(), 1) {
			r.due = nil
		}
		got, want := n.routing(0, r, s.Held), s.Read(from, reference)
		if got.Route() != want.Route() || got.Route().Chosen && got != want {
			t.Fatalf("%+v\ngot  %+v\nwant %+v", s, got, want)
		}
	})
}

// stateNode returns the node of a state, whose meters have seen nothing.
func stateNode(t testing.TB, s *routingtest.State) *node {
	j := shape{2, 4, 1, 1, Class{Name: "file", Rate: 100}, 0}.job(t)
	if s.Held {
		j.Nodes[0].Classes[0].Held = []int32{0}
	}
	if s.Owned {
		j.Plan.Owner[0] = 1
	}
	n := newCluster(j).nodes[0]
	n.limits = &InForce{}
	n.routed, n.explored = s.Routed, s.Explored
	return n
}
