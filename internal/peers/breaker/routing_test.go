package breaker

import (
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/hdmlp/hdmlp/internal/model/routing"
	"github.com/hdmlp/hdmlp/internal/model/routing/routingtest"
)

// TestArrivalOfStates: what a request to an owner is predicted to take, and how long it may take at
// least, depend on what they should, by any requests before it.
func TestArrivalOfStates(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s := routingtest.Draw(r, 1e5)
		var got, want prediction
		synctest.Test(t, func(*testing.T) { got, want = predict(&s) })
		if got != want {
			r.Fatalf("%+v\ngot  %+v\nwant %+v", s, got, want)
		}
	})
}

// prediction is what is expected of a request.
type prediction struct {
	owner  routing.Tier
	asks   bool
	relays bool
	asked  routing.Asked
}

// predict returns what is expected in a state, and what should be.
func predict(s *routingtest.State) (got, want prediction) {
	r := newRig(2)
	r.set.SetOwner(func(int) int { return 1 })
	c := r.set.circuits[1]
	from := time.Now()
	reference := routingtest.NewMeters()
	time.Sleep(s.Now)
	s.Play(from, reference)
	s.Play(from, routingtest.Meters{Owner: &c.meter, Circuit: &c.mu.Circuit})
	now := time.Now()
	wait := max(s.Due, 0)
	source := reference.Source.Arrival(now, s.Bytes)
	got.owner, got.asks = r.set.Owner(0, s.Bytes, source)
	got.relays = r.set.Relays(0)
	takes := routing.SourceTakes(source)
	_, got.asked = c.ask(now, s.Bytes, wait, takes)
	want.owner = reference.Tier(now, s.Bytes, source)
	want.asks = !reference.Circuit.Open(now)
	want.relays = reference.Circuit.Relays()
	predicted := reference.Predicted(now, s.Bytes)
	want.asked = reference.Circuit.Ask(now, wait, predicted, takes)
	return got, want
}
