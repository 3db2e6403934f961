package cache

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/hdmlp/hdmlp/internal/model/meter"
	"github.com/hdmlp/hdmlp/internal/model/routing"
	"github.com/hdmlp/hdmlp/internal/model/routing/routingtest"
)

// statePeers is the other node of a state.
type statePeers struct {
	fakePeer
	state  *routingtest.State
	meters routingtest.Meters
}

func (p *statePeers) Owner(_ int, bytes int64, source float64) (t routing.Tier, ok bool) {
	if !p.state.Owned {
		return t, false
	}
	return p.meters.Tier(time.Now(), bytes, source), true
}

// TestRoutingOfStates: the way of a read depends on what it should, by any reads before it. Package
// replay has the same test.
func TestRoutingOfStates(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s := routingtest.Draw(r, 100)
		var got, want routing.Read
		synctest.Test(t, func(t *testing.T) { got, want = routed(t, &s) })
		if got.Route() != want.Route() || got.Route().Chosen && got != want {
			r.Fatalf("%+v\ngot  %+v\nwant %+v", s, got, want)
		}
	})
}

// routed returns what the way of a state's read depends on, and what it should.
func routed(t *testing.T, s *routingtest.State) (got, want routing.Read) {
	o := plain(2)
	o.file, o.dir = 100, t.TempDir()
	g := newRig(t, o)
	defer g.close()
	if _, _, err := g.fetched(t, &Request{}, 0); err != nil {
		t.Fatal(err)
	}
	g.cache.Flush()
	g.cache.meters = make([]meter.Meter, len(g.cache.meters))
	g.cache.know(nil, nil)
	g.cache.explored.all.Store(s.Routed)
	g.cache.explored.source.Store(s.Explored)
	from, reference := time.Now(), routingtest.NewMeters()
	p := &statePeers{state: s, meters: routingtest.NewMeters()}
	time.Sleep(s.Now)
	s.Play(from, reference)
	s.Play(from, p.meters)
	s.Play(from, routingtest.Meters{
		Class: &g.cache.meters[FirstClass], Source: &g.cache.meters[Source],
		Others: &g.cache.meters[Peer],
	})
	r := &Request{Peers: p, Due: soon(s.Seconds())}
	if s.Remote {
		r = &Request{remote: true}
	}
	if math.IsInf(s.Seconds(), 1) {
		r.Due = nil
	}
	id := 1
	if s.Held {
		id = 0
	}
	g.cache.routing(r, id, &got)
	return got, s.Read(from, reference)
}
