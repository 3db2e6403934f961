package replay

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/model/meter"
	"github.com/hdmlp/hdmlp/internal/model/routing/routingtest"
)

// recorded is a run of the engine that is decided again: a node of a replay is given the reads as
// they happened.
type recorded struct {
	*node
	t      *testing.T
	routes map[int]*decision            // of samples that are being fetched
	reads  map[string]map[int]*progress // by tier and sample
}

// decision is how a sample is read.
type decision struct {
	route
	request
	next string // the tier that is read next
}

// progress is a read in progress.
type progress struct {
	begun   time.Duration
	limit   time.Duration // for how long it may be in progress, as known last; 0: for ever
	late    bool          // that is over
	givenUp bool
	meter   meter.Read // of a class or the source
	inquiry *inquiry   // to the owner
}

// newRecorded returns a node of the job that package cache records.
func newRecorded(t *testing.T) *recorded {
	j := shape{2, routingtest.Samples, 4, 1, Class{Name: "file", Rate: 100}, 0}.job(t)
	for k := range j.Sizes {
		j.Sizes[k] = int64(routingtest.Size(k))
		if k >= routingtest.OwnedFrom && k < routingtest.OwnedTo {
			j.Plan.Owner[k] = 1
		}
		if k < routingtest.Held {
			j.Nodes[0].Classes[0].Held = append(j.Nodes[0].Classes[0].Held, int32(k))
		}
	}
	n := newCluster(j).nodes[0]
	n.limits = &InForce{}
	return &recorded{
		node: n, t: t, routes: map[int]*decision{}, reads: map[string]map[int]*progress{
			routingtest.Class: {}, routingtest.Owner: {}, routingtest.Source: {},
		},
	}
}

// at sets the time.
func (r *recorded) at(at time.Duration) time.Time {
	r.c.events.now = at.Seconds()
	return r.c.events.time()
}

// expire ends limits that are over by a time, unless they have grown.
func (r *recorded) expire(by time.Duration) {
	for {
		var first *progress
		for _, q := range r.reads[routingtest.Owner] {
			if !q.late && q.begun+q.limit <= by &&
				(first == nil || q.begun+q.limit < first.begun+first.limit) {
				first = q
			}
		}
		if first == nil {
			return
		}
		r.at(first.begun + first.limit)
		if limit := first.inquiry.limit(); limit > first.limit {
			first.limit = limit
		} else {
			first.late = true
		}
	}
}

// fetch decides how a sample is read.
func (r *recorded) fetch(e routingtest.Event) {
	due := func() float64 {
		return max((e.For - r.c.events.time().Sub(time.Unix(0, 0))).Seconds(), 0)
	}
	d := &decision{request: request{peers: true, urgent: true, due: due}}
	d.route = r.route(int32(e.Sample), d.request, e.Sample < routingtest.Held)
	d.next = d.beside()
	if d.class {
		d.next = routingtest.Class
	}
	r.routes[e.Sample] = d
}

// beside returns the tier that is read if it is not the class.
func (d *decision) beside() string {
	if d.peer {
		return routingtest.Owner
	}
	return routingtest.Source
}

// begin begins a read that the engine began.
func (r *recorded) begin(e routingtest.Event, now time.Time) {
	k, begun := int32(e.Sample), &progress{begun: e.At}
	d := r.routes[e.Sample]
	if d != nil && d.next != e.Tier {
		r.t.Fatalf("%+v: the replay reads the %s: %+v", e, d.next, d.route)
	}
	switch e.Tier {
	case routingtest.Class:
		predicted := r.files[0].Predict(int64(routingtest.Size(e.Sample)))
		begun.meter = r.files[0].Begin(now, routingtest.Size(e.Sample))
		begun.limit = r.classLimit(k, predicted)
	case routingtest.Owner:
		begun.inquiry = r.ask(k, d.request)
		begun.limit = begun.inquiry.limit()
	case routingtest.Source:
		begun.meter = r.source.Begin(now, routingtest.Size(e.Sample))
	}
	r.reads[e.Tier][e.Sample] = begun
}

// end ends a read as the engine ended it.
func (r *recorded) end(e routingtest.Event, now time.Time) {
	was := r.reads[e.Tier][e.Sample]
	if e.Tier == routingtest.Class && !was.givenUp {
		was.late = e.At > was.begun+was.limit || e.What == routingtest.GiveUp
	}
	switch givesUp := e.What == routingtest.GiveUp; {
	case was.givenUp: // it ends by itself
	case givesUp != was.late, givesUp && e.At != was.begun+was.limit:
		r.t.Fatalf("%+v: begun at %v, and the replay gives it up after %v: %v", e, was.begun,
			was.limit, was.late)
	}
	if e.What != routingtest.GiveUp || e.Tier != routingtest.Class {
		delete(r.reads[e.Tier], e.Sample)
	}
	switch e.Tier {
	case routingtest.Source:
		r.source.End(now, was.meter, nil)
	case routingtest.Class:
		r.endClass(e, now, was)
	case routingtest.Owner:
		r.routes[e.Sample].next = routingtest.Source
		switch e.What {
		case routingtest.GiveUp:
			was.inquiry.giveUp()
		case routingtest.Refuse:
			was.inquiry.refused()
		default:
			was.inquiry.answered(e.For)
		}
	}
}

// endClass is end of the class, as readClass does it.
func (r *recorded) endClass(e routingtest.Event, now time.Time, was *progress) {
	switch {
	case was.givenUp:
		r.hung[0]--
	case was.late:
		was.givenUp = true
		r.hung[0]++
		r.files[0].GiveUp(now, was.meter)
		r.routes[e.Sample].next = r.routes[e.Sample].beside()
	default:
		r.files[0].End(now, was.meter, nil)
	}
}

// TestDecidesAsTheEngine: at each read of a recorded run of the engine, the replay decides alike,
// by what its meters have seen of the reads before: which tier is read, and when a class or another
// node is given up.
func TestDecidesAsTheEngine(t *testing.T) {
	path := filepath.Join("..", "..", "engine", "cache", "testdata", "reads.txt")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	events, err := routingtest.Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	r := newRecorded(t)
	for _, e := range events {
		r.expire(e.At)
		now := r.at(e.At)
		switch e.What {
		case routingtest.Fetch:
			r.fetch(e)
		case routingtest.Begin:
			r.begin(e, now)
		default:
			r.end(e, now)
		}
	}
}
