package routing

import (
	"math"
	"testing"
	"time"
)

const ms = time.Millisecond

// TestRouteWithoutAChoice: a read for another node is of this node's own copy, and what no tier has
// but the source is read there.
func TestRouteWithoutAChoice(t *testing.T) {
	late := Tier{Arrival: 1e9}
	for name, c := range map[string]struct {
		read Read
		want Route
	}{
		"the source alone":              {Read{}, Route{Tier: Source}},
		"a class that does not respond": {Read{Silent: true}, Route{Tier: Source, Direct: true}},
		"for another node, held": {
			Read{Remote: true, Held: 1, Classes: [6]Tier{late}}, Route{},
		},
		"for another node, not held":     {Read{Remote: true}, Route{Tier: Source}},
		"for another node, owned by one": {Read{Remote: true, Asks: true}, Route{Tier: Source}},
	} {
		if got := c.read.Route(); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// TestRoute: of a class, the owner and the source, each may be read, be late, stale, or not there.
func TestRoute(t *testing.T) {
	inf := math.Inf(1)
	class := Read{Held: 1, Classes: [6]Tier{{Arrival: 0.5}}, Source: Tier{Arrival: 0.1}}
	both := class
	both.Asks = true
	both.Owner = Tier{Arrival: 0.3}
	with := func(r Read, due float64, change func(*Read)) Read {
		r.Due = due
		if change != nil {
			change(&r)
		}
		return r
	}
	for name, c := range map[string]struct {
		read Read
		want Route
	}{
		"ahead of time":     {with(both, inf, nil), Route{Asks: true, Chosen: true}},
		"the class in time": {with(both, 0.5, nil), Route{Asks: true, Chosen: true}},
		"the class is late": {with(both, 0.4, nil), Route{Owner, true, true, true, false}},
		"the owner is late": {with(both, 0.2, nil), Route{Source, false, true, true, false}},
		"no owner":          {with(class, 0.4, nil), Route{Source, false, true, true, false}},
		"a stale class": {
			with(both, 0.2, func(r *Read) { r.Classes[0].Stale = true }), Route{Asks: true, Chosen: true},
		},
		"a stale source": {
			with(both, inf, func(r *Read) { r.Source.Stale, r.Explores = true, true }),
			Route{Source, false, true, true, true},
		},
		"a stale source that is chosen anyway": {
			with(both, 0.2, func(r *Read) { r.Source.Stale, r.Explores = true, true }),
			Route{Source, false, true, true, false},
		},
		"a stale source that may not be read": {
			with(both, inf, func(r *Read) { r.Source.Stale = true }), Route{Asks: true, Chosen: true},
		},
		"the owner of what a silent class has": {
			with(both, 0.4, func(r *Read) { r.Held, r.Silent = 0, true }),
			Route{Owner, true, true, true, false},
		},
		"the owner alone": {
			with(both, 0.4, func(r *Read) { r.Held = 0 }), Route{Owner, true, false, true, false},
		},
	} {
		if got := c.read.Route(); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestMayExplore(t *testing.T) {
	for _, c := range []struct {
		bytes, explored, all int64
		want                 bool
	}{{1, 0, 1000, true}, {1, 0, 999, false}, {1, 1, 1999, false}, {1, 1, 2000, true}} {
		if got := MayExplore(c.bytes, c.explored, c.all); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	for takes, want := range map[float64]time.Duration{0: time.Second, 0.01: time.Second, 1: 100e9} {
		if got := CheckInterval(takes); got != want {
			t.Errorf("a read of %v s: after %v, want %v", takes, got, want)
		}
	}
}

// TestLimits: how long a class, and a request to another node, may take.
func TestLimits(t *testing.T) {
	for _, c := range []struct {
		predicted                           float64
		source, least, timeout, class, node time.Duration
	}{
		{0, 0, 0, 0, 100 * ms, 100 * ms},
		{0.02, 0, 0, 0, 100 * ms, 100 * ms},
		{0.1, 0, 0, 0, 400 * ms, 100 * ms},
		{1e300, 0, 0, 0, time.Second, 100 * ms},
		{0, 50 * ms, 0, 0, 400 * ms, 400 * ms},
		{0, 50 * ms, time.Second, 0, 400 * ms, time.Second},
		{0.02, 5 * time.Second, 0, 0, 40 * time.Second, 10 * time.Second},
		{0, 5 * time.Second, 0, 8 * time.Second, 2 * time.Second, 2 * time.Second},
		{9, 0, time.Second, 2 * time.Second, 500 * ms, 500 * ms},
	} {
		class := ClassLimit(c.predicted, c.source, c.timeout)
		node := Limit(c.source, c.least, c.timeout)
		if class != c.class || node != c.node {
			t.Errorf("%+v: a class %v, a node %v", c, class, node)
		}
	}
	if got := LastResort(time.Minute); got != 3*time.Second {
		t.Errorf("the last resort has %v", got)
	}
	if got := LastResort(0); got != MinTimeout {
		t.Errorf("the last resort has %v without a limit", got)
	}
	for arrival, want := range map[float64]time.Duration{0.01: 10 * ms, 1e9: time.Hour} {
		if got := SourceTakes(arrival); got != want {
			t.Errorf("%v s: %v", arrival, got)
		}
	}
}

// TestCircuit follows a node that has to read samples, answers, fails and is back.
func TestCircuit(t *testing.T) {
	var c Circuit
	now := time.Unix(100, 0)
	if !c.Relays() || c.Ask(now, 0, 0, 0).Least != ExpectedLimit || c.Open(now) {
		t.Errorf("at first: %+v", c)
	}
	if c.Answered(now, Asked{}, 8*ms, 4*ms) || c.Latency() != 8*ms || c.Relays() ||
		c.Waited() != 0.004/16 {
		t.Errorf("after an answer: %+v", c)
	}
	for _, ask := range []struct {
		wait      time.Duration
		predicted float64
		want      time.Duration
	}{{0, 0, 0}, {300 * ms, 0, 300 * ms}, {0, 0.1, 400 * ms}, {time.Hour, 1, time.Second}} {
		if got := c.Ask(now, ask.wait, ask.predicted, 0); got.Least != ask.want {
			t.Errorf("%+v: %v", ask, got)
		}
	}
	if _, silent := c.Silent(now.Add(1999*ms), Asked{}, ms); silent {
		t.Error("silent before 2 s")
	}
	since, silent := c.Silent(now.Add(2*time.Second), Asked{}, ms)
	if !silent || since != 2*time.Second {
		t.Errorf("silent: %v, since %v", silent, since)
	}
	if _, silent := c.Silent(now.Add(3*time.Second), Asked{}, time.Second); silent {
		t.Error("silent before 8 times what the source takes")
	}
	for k, want := range []time.Duration{500 * ms, time.Second} {
		if c.Failed(now, Unavailable) != (k == 0) || c.Open(now.Add(want)) ||
			!c.Open(now.Add(want-1)) {
			t.Errorf("failure %d: not bypassed for %v: %+v", k, want, c)
		}
		if c.Failed(now, Wrong) || c.Failed(now, Unserved) || c.Open(now.Add(want)) {
			t.Error("bypassed again by what was in flight")
		}
		now = now.Add(want)
	}
	c.Ask(now, 0, 0, 0)
	if since, silent := c.Silent(now.Add(ms), Asked{}, 0); !silent || since != 0 {
		t.Errorf("a request after that: silent %v since %v", silent, since)
	}
	if !c.Answered(now, Asked{}, ms, 0) || c.Answered(now, Asked{}, ms, 0) {
		t.Error("that it answers again is not reported, or twice")
	}
	if !c.Failed(now, Wrong) || !c.Open(now.Add(MaxPause-1)) ||
		c.Open(now.Add(MaxPause)) {
		t.Errorf("corrupt data: %+v", c)
	}
	if c.Back(); c.Open(now) || !c.Relays() || c.Latency() != 0 {
		t.Errorf("back: %+v", c)
	}
}
