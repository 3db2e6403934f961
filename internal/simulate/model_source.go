package simulate

import (
	"math"
	"slices"

	"github.com/hdmlp/hdmlp/internal/perfmodel"
)

// tournament finds the node with the smallest key, or the lowest-numbered of those with equal keys.
// It is a complete binary tree: leaf leaves+i is node i, and an inner entry repeats the smaller of
// its two children.
//
// An entry is one word, so that the smaller of two is found without a branch, which would be
// mispredicted: the bits of the key, which sort as the key does because no key is negative, with
// the last ones replaced by the node's number. Keys that agree to about 12 digits (with 4096 nodes)
// therefore tie; exact holds the full keys.
type tournament struct {
	leaves int
	mask   uint64 // of the node's number
	entry  []uint64
	exact  []float64 // per node
}

func newTournament(n int) tournament {
	t := tournament{leaves: 1, exact: make([]float64, n)}
	for t.leaves < n {
		t.leaves *= 2
	}
	t.mask = uint64(t.leaves - 1)
	t.entry = make([]uint64, 2*t.leaves)
	for i := range t.leaves {
		t.entry[t.leaves+i] = math.Float64bits(inf)&^t.mask | uint64(i)
	}
	for i := range t.exact {
		t.exact[i] = inf
	}
	for i := t.leaves - 1; i >= 1; i-- {
		t.entry[i] = min(t.entry[2*i], t.entry[2*i+1])
	}
	return t
}

// first returns the node with the smallest key, and that key.
func (t *tournament) first() (node int, key float64) {
	node = int(t.entry[1] & t.mask)
	return node, t.exact[node]
}

// set changes a node's key, which is not negative.
func (t *tournament) set(node int, key float64) {
	if t.exact[node] == key {
		return
	}
	t.exact[node] = key
	i := t.leaves + node
	w := math.Float64bits(key)&^t.mask | uint64(node)
	t.entry[i] = w
	for i > 1 {
		w = min(w, t.entry[i^1])
		i >>= 1
		if t.entry[i] == w {
			return // nothing changes further up
		}
		t.entry[i] = w
	}
}

// source is the shared source as a fluid (thesis equation 3.5): each of gamma nodes with a read in
// flight gets min(b_fs, t(gamma)/gamma), and divides it evenly among its reads in flight.
//
// As all reading nodes get the same rate, one clock suffices for all: served, the MB received by a
// node that has been reading all the time. A node's next read ends at a value of this clock that
// does not depend on gamma, so when gamma changes, only the speed of the clock changes. The same
// method applies within a node: its own clocks count the MB per read.
type source struct {
	rate   []float64 // per gamma, from 1
	slow   []float64 // 1/rate
	gamma  int
	served float64 // at time at
	at     float64
	due    tournament // per node: the value of served at which its next read ends
	nodes  []reader
}

// reader holds a node's reads from the source. Reads that fill classes get only the bandwidth that
// staging leaves (thesis 3.2.2 fills ahead of time, which must not delay what is needed now): the
// node's bandwidth is divided among the reads that a staging thread waits for, on this node or
// another, and among the others only if there are none.
type reader struct {
	since  float64 // the value of served as of which the two below are up to date
	urgent queue
	ahead  queue
}

// queue holds reads that get the same rate.
type queue struct {
	got   float64  // MB per read, since the queue was last empty
	reads []flight // by descending end, so that the next to end comes last
}

// add adds a read and returns it, for the caller to fill in.
func (q *queue) add(end float64) *flight {
	n := len(q.reads)
	if n == cap(q.reads) {
		q.reads = append(q.reads, flight{})
	} else {
		q.reads = q.reads[:n+1]
	}
	for ; n > 0 && q.reads[n-1].end < end; n-- {
		q.reads[n] = q.reads[n-1]
	}
	f := &q.reads[n]
	f.end = end
	return f
}

// due returns how many MB the node receives until its next read ends.
func (q *queue) due() float64 {
	last := len(q.reads) - 1
	return (q.reads[last].end - q.got) * float64(last+1)
}

// advance credits the node's reads with what the source has served since the last call.
func (r *reader) advance(served float64) {
	q := r.active()
	if n := len(q.reads); n > 0 {
		q.got += (served - r.since) / float64(n)
	}
	r.since = served
}

// active returns the reads that share the node's bandwidth.
func (r *reader) active() *queue {
	if len(r.urgent.reads) > 0 {
		return &r.urgent
	}
	return &r.ahead
}

// flight is a read from the source under way.
type flight struct {
	end  float64 // the value of its queue's got at which it ends
	size float64
	who  waiter // the reading thread; next lists those that wait for the read
	copy int32  // the copy that it makes; -1: none
}

// waiter is a thread that waits for a sample.
type waiter struct {
	at     int // position of the sample in the node's stream
	node   int32
	thread int32 // of the staging buffer, or one of the numbers below
	next   int32 // the next waiter, an index of model.waiters; -1: none
}

const (
	demandRead  = -1 // no thread: an alarm when training asks for a sample
	ownerThread = -2 // no thread: the owner reads for other nodes
	fillThread  = -3 // and below: fills class fillThread-thread+1
)

func newSource(env *perfmodel.Environment, nodes int) source {
	s := source{
		rate:  make([]float64, nodes+1),
		slow:  make([]float64, nodes+1),
		due:   newTournament(nodes),
		nodes: make([]reader, nodes),
	}
	for g := 1; g <= nodes; g++ {
		s.rate[g] = env.SourceRate(g)
		s.slow[g] = 1 / s.rate[g]
	}
	return s
}

// next returns when the next read ends.
func (s *source) next() float64 {
	if s.gamma == 0 {
		return math.Inf(1)
	}
	_, due := s.due.first()
	if due <= s.served {
		return s.at
	}
	return s.at + (due-s.served)*s.slow[s.gamma]
}

// share returns the rate that one more urgent read of the node would get now.
func (s *source) share(node int) float64 {
	r := &s.nodes[node]
	if n := len(r.urgent.reads); n > 0 {
		return s.rate[s.gamma] / float64(n+1)
	}
	if len(r.ahead.reads) > 0 {
		return s.rate[s.gamma]
	}
	return s.rate[s.gamma+1]
}

// begin starts a read at time now, of a sample of the given size.
func (s *source) begin(node int, now, size float64, copyOf int32, who waiter) {
	if s.gamma > 0 {
		s.served += (now - s.at) * s.rate[s.gamma]
	}
	s.at = now
	r := &s.nodes[node]
	if len(r.urgent.reads)+len(r.ahead.reads) == 0 {
		s.gamma++
	}
	r.advance(s.served)
	q := &r.urgent
	if who.thread <= fillThread {
		q = &r.ahead
	}
	if len(q.reads) == 0 {
		q.got = 0
	}
	// field by field: copying a struct right after writing its fields is slow
	f := q.add(q.got + size)
	f.size, f.copy = size, copyOf
	f.who.at, f.who.node, f.who.thread, f.who.next = who.at, who.node, who.thread, who.next
	s.due.set(node, s.served+r.active().due())
}

// end finishes the read that ends next, at time now, as next returned it. The flight is valid until
// the node begins another read.
func (s *source) end(now float64) (reader int, f *flight) {
	node, due := s.due.first()
	s.served, s.at = max(s.served, due), now
	r := &s.nodes[node]
	q := r.active()
	n := len(q.reads) - 1
	f = &q.reads[n]
	q.reads = q.reads[:n]
	q.got, r.since = f.end, s.served
	if n == 0 {
		if q = r.active(); len(q.reads) == 0 {
			s.gamma--
			s.due.set(node, math.Inf(1))
			return node, f
		}
	}
	s.due.set(node, s.served+q.due())
	return node, f
}

// wanted returns the node's read that makes the copy and marks it urgent from time now on, because
// a thread waits for it.
func (s *source) wanted(node int, now float64, copyOf int32) *flight {
	r := &s.nodes[node]
	for i := range r.urgent.reads {
		if r.urgent.reads[i].copy == copyOf {
			return &r.urgent.reads[i]
		}
	}
	for i := range r.ahead.reads {
		if r.ahead.reads[i].copy == copyOf {
			s.served += (now - s.at) * s.rate[s.gamma]
			s.at = now
			r.advance(s.served)
			f := r.ahead.reads[i]
			r.ahead.reads = slices.Delete(r.ahead.reads, i, i+1)
			if len(r.urgent.reads) == 0 {
				r.urgent.got = 0
			}
			at := r.urgent.add(r.urgent.got + f.end - r.ahead.got)
			at.size, at.copy, at.who = f.size, f.copy, f.who
			s.due.set(node, s.served+r.urgent.due())
			return at
		}
	}
	return nil
}
