package replay

import (
	"math"
	"slices"
	"time"
)

// events is what happens, in order of time, then of when it was foreseen.
type events struct {
	now  float64 // seconds
	seq  int
	list heap[event]
}

type event struct {
	at  float64
	seq int
	do  func()
}

func (e event) before(o event) bool { return e.at < o.at || e.at == o.at && e.seq < o.seq }

// at lets something happen at a time that is not over.
func (e *events) at(time float64, do func()) {
	e.seq++
	e.list.push(event{max(time, e.now), e.seq, do})
}

// after lets something happen after so many seconds.
func (e *events) after(seconds float64, do func()) { e.at(e.now+seconds, do) }

// latest is the last time in seconds that meters tell from later ones: they count nanoseconds.
const latest = 9e9

// time returns the time as meters want it.
func (e *events) time() time.Time {
	return time.Unix(0, 0).Add(seconds(e.now))
}

// seconds returns so many seconds as meters want them.
func seconds(s float64) time.Duration {
	return time.Duration(math.Round(min(s, latest) * float64(time.Second)))
}

// next lets the next thing happen; it reports whether there was one.
func (e *events) next() bool {
	if len(e.list) == 0 {
		return false
	}
	first := e.list.pop()
	e.now = first.at
	first.do()
	return true
}

// queue serves one after another: a device, one direction of a link, or the source.
type queue struct {
	perMB float64 // seconds
	free  float64 // when it has served all so far
}

// take returns when it has served another so many MB, for which it is asked now.
func (q *queue) take(now, mb float64) float64 {
	q.free = max(q.free, now) + mb*q.perMB
	return q.free
}

// servers are a number of servers with one queue: threads that transform. More may be busy than
// there are now to be: these end what they have begun.
type servers struct {
	most, busy int
	waiting    []func()
}

// run lets do begin when a server is free. It must be followed by release.
func (s *servers) run(do func()) {
	if s.busy < s.most {
		s.busy++
		do()
		return
	}
	s.waiting = append(s.waiting, do)
}

func (s *servers) release() {
	s.busy--
	s.admit()
}

// open changes their number.
func (s *servers) open(most int) {
	s.most = most
	s.admit()
}

func (s *servers) admit() {
	for s.busy < s.most && len(s.waiting) > 0 {
		next := s.waiting[0]
		s.waiting[0] = nil
		s.waiting = s.waiting[1:]
		s.busy++
		next()
	}
}

// gate admits reads to the source as pool.Gate does: those that something waits for first.
type gate struct {
	limit, inside int
	urgent, rest  []*flight
}

// enter admits a flight at once, or later: it then calls its admitted.
func (g *gate) enter(f *flight) {
	switch {
	case g.inside < g.limit:
		g.inside++
		f.admitted()
	case f.urgent:
		g.urgent = append(g.urgent, f)
	default:
		g.rest = append(g.rest, f)
	}
}

// hasten makes a flight urgent.
func (g *gate) hasten(f *flight) {
	f.urgent = true
	if i := slices.Index(g.rest, f); i >= 0 {
		g.rest = slices.Delete(g.rest, i, i+1)
		g.urgent = append(g.urgent, f)
	}
}

func (g *gate) leave() {
	g.inside--
	g.admit()
}

// admit admits as many reads as there may be.
func (g *gate) admit() {
	for g.inside < g.limit && len(g.urgent)+len(g.rest) > 0 {
		list := &g.urgent
		if len(*list) == 0 {
			list = &g.rest
		}
		next := (*list)[0]
		(*list)[0] = nil
		*list = (*list)[1:]
		g.inside++
		next.admitted()
	}
}
