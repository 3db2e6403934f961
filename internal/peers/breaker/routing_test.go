package breaker

import (
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/hdmlp/hdmlp/internal/model/routing/routingtest"
)

// TestArrivalOfStates: what a request to an owner is predicted to take, and how long it may take at
// least, depend on what they should, by any requests before it.
func TestArrivalOfStates(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s, source := routingtest.Draw(r, 1e5), rapid.Float64Range(0, 2).Draw(r, "source")
		var got, want prediction
		synctest.Test(t, func(*testing.T) { got, want = predict(&s, source) })
		if got != want {
			r.Fatalf("%+v\ngot  %+v\nwant %+v", s, got, want)
		}
	})
}

// prediction is what is expected of a request.
type prediction struct {
	arrival float64
	asks    bool
	relays  bool
	least   time.Duration // that it may take
}

// predict returns what is expected in a state, and what should be.
func predict(s *routingtest.State, source float64) (got, want prediction) {
	r := newRig(2)
	r.set.SetOwner(func(int) int { return 1 })
	c := r.set.circuits[1]
	from := time.Now()
	reference := routingtest.NewMeters()
	time.Sleep(s.Now)
	s.Play(from, reference)
	s.Play(from, routingtest.Meters{Owner: &c.meter, Circuit: &c.mu.Circuit})
	now := time.Now()
	takes := time.Duration(source * float64(time.Second))
	wait := max(s.Due, 0)
	got.arrival, got.asks = r.set.Arrival(0, s.Bytes, source)
	got.relays = r.set.Relays(0)
	_, got.least = c.ask(now, s.Bytes, takes, wait)
	want.arrival = reference.Arrival(now, s.Bytes, source)
	want.asks = !reference.Circuit.Open(now)
	want.relays = reference.Circuit.Relays()
	predicted := reference.Predicted(now, s.Bytes, takes.Seconds())
	want.least = reference.Circuit.Ask(now, wait, predicted)
	return got, want
}
