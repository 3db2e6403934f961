package simulate

import (
	"math"

	"github.com/hdmlp/hdmlp/internal/model"
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
// flight gets min(b_fs, t(gamma)/gamma). A node's reads are transferred in the order in which they
// are needed, one after another; its streams keep the source busy without a pause between them.
//
// As all reading nodes get the same rate, one clock suffices for all: served, the MB received by a
// node that has been reading all the time. A node's next read ends at a value of this clock that
// does not depend on gamma, so when gamma changes, only the speed of the clock changes.
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
// staging leaves (thesis 3.2.2 fills ahead of time, which must not delay what is needed now): they
// proceed while there is no read for staging, on this node or another.
type reader struct {
	since  float64 // the value of served as of which the two below are up to date
	urgent queue
	ahead  queue
}

// queue holds reads in the order in which they end.
type queue struct {
	ring[flight]
	mb float64 // to come, of all
}

// begin adds a read of which this many MB are to come and returns it, for the caller to fill in.
func (q *queue) begin(left float64) *flight {
	f := q.add()
	f.left = left
	q.mb += left
	return f
}

// receive credits the first read with this many MB.
func (q *queue) receive(mb float64) {
	q.head().left -= mb
	q.mb -= mb
}

// end removes the first read.
func (q *queue) end() *flight {
	f := q.pop()
	q.mb -= f.left
	if q.empty() {
		q.mb = 0 // without what rounding left
	}
	return f
}

// advance credits the node's first read with what the source has served since the last call.
func (r *reader) advance(served float64) {
	if q := r.active(); !q.empty() {
		q.receive(served - r.since)
	}
	r.since = served
}

// active returns the reads that the node receives now.
func (r *reader) active() *queue {
	if !r.urgent.empty() {
		return &r.urgent
	}
	return &r.ahead
}

func (r *reader) idle() bool { return r.urgent.empty() && r.ahead.empty() }

// flight is a read from the source under way.
type flight struct {
	left float64 // MB to come
	size float64
	who  waiter // the reader; next lists those that wait for the read
	copy int32  // the copy that it makes; -1: none
}

// waiter is a reader of a sample, or waits for another's read.
type waiter struct {
	at   int // position of the sample in the rank's stream
	rank int32
	what int32 // stageRead, or one of the numbers below
	next int32 // the next waiter, an index of model.waiters; -1: none
}

const (
	stageRead  = 0  // for the staging buffer
	demandRead = -1 // an alarm when training asks for a sample
	ownerRead  = -2 // the owner reads for other nodes
	fillRead   = -3 // and below: fills class fillRead-what+1
)

func newSource(env *model.Environment, nodes int) source {
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

// takes returns how many seconds one more read of the node for staging would take from time now on,
// after those that are in flight and another `queued` MB.
func (s *source) takes(node int, now, size, queued float64) float64 {
	r := &s.nodes[node]
	if r.idle() {
		return (queued + size) * s.slow[s.gamma+1]
	}
	if !r.urgent.empty() {
		queued += max(r.urgent.mb-(s.served-r.since)-(now-s.at)*s.rate[s.gamma], 0)
	}
	return (queued + size) * s.slow[s.gamma]
}

// to advances the clock to time now.
func (s *source) to(now float64) {
	if s.gamma > 0 {
		s.served += (now - s.at) * s.rate[s.gamma]
	}
	s.at = now
}

// begin starts a read at time now, of a sample of the given size.
func (s *source) begin(node int, now, size float64, copyOf int32, who waiter) {
	s.to(now)
	r := &s.nodes[node]
	if r.idle() {
		s.gamma++
	}
	r.advance(s.served)
	q := &r.urgent
	if who.what <= fillRead {
		q = &r.ahead
	}
	changes := q.empty()
	// field by field: copying a struct right after writing its fields is slow
	f := q.begin(size)
	f.size, f.copy = size, copyOf
	f.who.at = who.at
	f.who.rank = who.rank
	f.who.what = who.what
	f.who.next = who.next
	if changes {
		s.due.set(node, s.served+r.active().head().left)
	}
}

// end finishes the read that ends next, at time now, as next returned it. The flight is valid until
// its node begins another read.
func (s *source) end(now float64) *flight {
	node, due := s.due.first()
	s.served, s.at = max(s.served, due), now
	r := &s.nodes[node]
	q := r.active()
	q.receive(s.served - r.since)
	r.since = s.served
	f := q.end()
	if q.empty() {
		q = &r.ahead
	}
	if q.empty() {
		s.gamma--
		s.due.set(node, inf)
		return f
	}
	s.due.set(node, s.served+q.head().left)
	return f
}

// wanted returns the node's read that makes the copy and makes it urgent from time now on, because
// a rank waits for it.
func (s *source) wanted(node int, now float64, copyOf int32) *flight {
	r := &s.nodes[node]
	for i := r.urgent.next - 1; i >= r.urgent.first; i-- {
		if f := r.urgent.at(i); f.copy == copyOf {
			return f
		}
	}
	for i := r.ahead.first; i < r.ahead.next; i++ {
		if r.ahead.at(i).copy == copyOf {
			s.to(now)
			r.advance(s.served)
			f := *r.ahead.at(i)
			r.ahead.remove(i)
			r.ahead.mb -= f.left
			at := r.urgent.begin(f.left)
			at.size = f.size
			at.copy = f.copy
			at.who = f.who
			s.due.set(node, s.served+r.urgent.head().left)
			return at
		}
	}
	return nil
}
