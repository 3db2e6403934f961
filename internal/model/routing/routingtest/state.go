package routingtest

import (
	"errors"
	"math"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/model/meter"
	"github.com/hdmlp/hdmlp/internal/model/routing"
)

// State is the state of a node of a job on two nodes, which is about to read a sample: the reads
// that it has begun before, and what it reads now.
type State struct {
	Events []Event // in order; not all reads have ended
	Now    time.Duration
	Bytes  int64         // of the sample, and of all before
	Held   bool          // the class has the sample
	Owned  bool          // the other node owns it
	Remote bool          // the other node needs it
	Due    time.Duration // from now; negative: it is read ahead of time
	// Routed are the bytes of reads for which a tier was chosen, and Explored those that were read
	// only to renew the source's estimates.
	Routed, Explored int64
}

// Meters are a node's meters of its class, the source, all other nodes, and the owner; and what the
// owner's answers say of it. nil: there is none.
type Meters struct {
	Class, Source, Others, Owner *meter.Meter
	Circuit                      *routing.Circuit
}

// NewMeters returns meters that have measured nothing.
func NewMeters() Meters {
	m := Meters{
		Class: &meter.Meter{}, Source: &meter.Meter{}, Others: &meter.Meter{}, Owner: &meter.Meter{},
		Circuit: &routing.Circuit{},
	}
	m.Know()
	return m
}

// Know has the meters begin with guesses.
func (m Meters) Know() {
	for of, guess := range map[*meter.Meter]model.Known{
		m.Class: model.GuessedClass, m.Source: model.GuessedSource, m.Others: model.GuessedPeer,
		m.Owner: model.GuessedPeer,
	} {
		if of != nil {
			of.Know(guess)
		}
	}
}

// Draw draws a state. Sizes are all alike.
func Draw(t *rapid.T, bytes int64) State {
	s := State{
		Bytes: bytes, Held: rapid.Bool().Draw(t, "held"), Owned: rapid.Bool().Draw(t, "owned"),
		Remote: rapid.IntRange(0, 9).Draw(t, "remote") == 0,
		Due:    time.Duration(rapid.Int64Range(-1e8, 3e8).Draw(t, "due")),
		Routed: rapid.Int64Range(0, 3000*bytes).Draw(t, "routed"),
	}
	s.Explored = rapid.Int64Range(0, 1+s.Routed/500).Draw(t, "explored")
	var last time.Duration
	for k := range rapid.IntRange(0, 80).Draw(t, "reads") {
		tier := rapid.SampledFrom([]string{Class, Owner, Source}).Draw(t, "tier")
		last += time.Duration(rapid.Int64Range(1, 2e7).Draw(t, "pause"))
		takes := time.Duration(rapid.Int64Range(1e5, 5e7).Draw(t, "takes"))
		end := Event{At: last + takes, What: End, Tier: tier, Sample: k}
		if tier == Owner {
			end.What = rapid.SampledFrom([]What{End, End, End, GiveUp, Refuse}).Draw(t, "end")
		}
		if end.What == End && tier == Owner && rapid.Bool().Draw(t, "waits") {
			end.For = takes / 2
		}
		s.Events = append(s.Events, Event{At: last, What: Begin, Tier: tier, Sample: k}, end)
	}
	slices.SortStableFunc(s.Events, func(a, b Event) int { return int(a.At - b.At) })
	s.Now = last + time.Duration(rapid.Int64Range(0, 3e9).Draw(t, "now"))
	s.Events = slices.DeleteFunc(s.Events, func(e Event) bool { return e.At > s.Now })
	return s
}

var errRefused = errors.New("refused")

// Play has the meters see the events, of a run that began at a time.
func (s *State) Play(from time.Time, m Meters) {
	type reads struct{ of, others meter.Read }
	begun := map[int]reads{}
	by := map[string]*meter.Meter{Class: m.Class, Owner: m.Owner, Source: m.Source}
	for _, e := range s.Events {
		now, was := from.Add(e.At), begun[e.Sample]
		of, owned := by[e.Tier], e.Tier == Owner
		if e.What == Begin {
			if of != nil {
				was.of = of.Begin(now, int(s.Bytes))
			}
			if owned && m.Others != nil {
				was.others = m.Others.Begin(now, int(s.Bytes))
			}
			begun[e.Sample] = was
			continue
		}
		var err error
		if e.What != End {
			err = errRefused
		}
		was.of.Waited, was.others.Waited = e.For, e.For
		switch {
		case of == nil:
		case e.What == GiveUp:
			of.GiveUp(now, was.of)
		default:
			of.End(now, was.of, err)
		}
		if owned && m.Others != nil {
			m.Others.End(now, was.others, err)
		}
		if owned && m.Circuit != nil && e.What == End {
			m.Circuit.Answered(now, routing.Asked{}, now.Sub(began(s.Events, e.Sample, from)), e.For)
		}
	}
}

// began returns when a read began.
func began(events []Event, sample int, from time.Time) time.Time {
	i := slices.IndexFunc(events, func(e Event) bool { return e.Sample == sample })
	return from.Add(events[i].At)
}

// Predicted returns what the owner is predicted to take.
func (m Meters) Predicted(now time.Time, bytes int64) float64 {
	return m.Owner.Answer(now, bytes, m.Circuit.Waited())
}

// Tier returns the owner as a choice needs it, if the source is predicted to take so many seconds.
func (m Meters) Tier(now time.Time, bytes int64, source float64) (t routing.Tier) {
	m.Circuit.Consider()
	t.Arrival = m.Predicted(now, bytes)
	t.Stale = m.Circuit.Stale(now, m.Owner.Idle(now), t.Arrival, source)
	return t
}

// Seconds returns when the sample is needed; +Inf: it is read ahead of time.
func (s *State) Seconds() float64 {
	if s.Due < 0 {
		return math.Inf(1)
	}
	return s.Due.Seconds()
}

// Read returns what the way of the read depends on, by meters that have seen the events: what every
// caller of package routing must make of the state.
func (s *State) Read(from time.Time, m Meters) routing.Read {
	now := from.Add(s.Now)
	read := routing.Read{
		Remote: s.Remote, Due: s.Seconds(),
		Source:   m.Source.Tier(now, s.Bytes),
		Explores: routing.MayExplore(s.Bytes, s.Explored, s.Routed),
	}
	if s.Held {
		read.Classes[0] = m.Class.Tier(now, s.Bytes)
		read.Held = 1
	}
	if s.Owned && !s.Remote { // a read for another node never asks a third one
		read.Asks = true
		read.Owner = m.Tier(now, s.Bytes, read.Source.Arrival)
	}
	return read
}
