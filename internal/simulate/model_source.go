package simulate

import (
	"math"

	"github.com/hdmlp/hdmlp/internal/perfmodel"
)

// tournament finds the node with the smallest key, the lowest numbered one where keys tie. It is a complete binary tree:
// leaf leaves+i is node i, and an inner entry repeats the smaller of its two children.
type tournament struct {
	leaves int
	entry  []contender
}

type contender struct {
	key  float64
	node int32
}

func newTournament(n int) tournament {
	leaves := 1
	for leaves < n {
		leaves *= 2
	}
	t := tournament{leaves: leaves, entry: make([]contender, 2*leaves)}
	for i := range t.entry {
		t.entry[i].key = math.Inf(1)
	}
	for i := range leaves {
		t.entry[leaves+i].node = int32(i)
	}
	for i := leaves - 1; i >= 1; i-- {
		t.entry[i].node = t.entry[2*i].node
	}
	return t
}

func (t *tournament) first() contender { return t.entry[1] }

// set changes a node's key. It stops where nothing changes any more, mostly after a level or two.
func (t *tournament) set(node int, key float64) {
	i := t.leaves + node
	if t.entry[i].key == key {
		return
	}
	t.entry[i].key = key
	for i > 1 {
		left := i &^ 1
		w := t.entry[left]
		if o := t.entry[left+1]; o.key < w.key {
			w = o
		}
		i >>= 1
		if t.entry[i] == w {
			return
		}
		t.entry[i] = w
	}
}

// source is the shared source as a fluid (thesis equation 3.5): each of gamma nodes with a read in flight gets
// min(b_fs, t(gamma)/gamma), and divides it evenly among its reads in flight.
//
// As all reading nodes get the same rate, one clock does for all: served, the MB that a node has got that has
// been reading all the time. A node's next read ends at a value of this clock that does not depend on gamma, so when gamma
// changes, the clock changes its speed and nothing else is touched. Within a node the same trick is
// played again: its own clock counts the MB per read.
type source struct {
	rate   []float64 // per gamma, from 1
	gamma  int
	served float64 // at time at
	at     float64
	due    tournament // per node: the value of served at which its next read ends
	nodes  []reader
}

// reader is a node's side of the source.
type reader struct {
	got   float64 // MB per read in flight, when served was since
	since float64
	reads []flight // by descending end, so that the next to end comes last
}

// flight is a read from the source under way.
type flight struct {
	end     float64 // the value of the reader's clock at which it ends
	size    float64
	copy    int32 // the copy that it brings; -1: none
	waiting int32 // who waits for it besides whoever reads; index of a waiter, -1: nobody
	who     waiter
}

// waiter is a thread whose sample is on its way.
type waiter struct {
	node   int32
	thread int32 // of the staging buffer; demandThread, or fillThread less the class
	at     int   // position of the sample in the node's stream
	next   int32 // who else waits; -1: nobody
}

const (
	demandThread = -1
	ownerThread  = -2 // none: the owner reads for others
	fillThread   = -3 // and below: fills class fillThread-thread+1
)

func newSource(env *perfmodel.Environment, nodes int) source {
	s := source{rate: make([]float64, nodes+1), due: newTournament(nodes), nodes: make([]reader, nodes)}
	for g := 1; g <= nodes; g++ {
		s.rate[g] = env.SourceRate(g)
	}
	return s
}

// next returns when the next read ends.
func (s *source) next() float64 {
	if s.gamma == 0 {
		return math.Inf(1)
	}
	return s.at + max(0, s.due.entry[1].key-s.served)/s.rate[s.gamma]
}

// share returns the rate of one more read of the node, were it to begin now.
func (s *source) share(node int) float64 {
	n := len(s.nodes[node].reads)
	if n == 0 {
		return s.rate[s.gamma+1]
	}
	return s.rate[s.gamma] / float64(n+1)
}

// begin starts a read at time now.
func (s *source) begin(node int, now float64, f flight) {
	if s.gamma > 0 {
		s.served += (now - s.at) * s.rate[s.gamma]
	}
	s.at = now
	r := &s.nodes[node]
	n := len(r.reads)
	if n == 0 {
		s.gamma++
		r.got = 0
	} else {
		r.got += (s.served - r.since) / float64(n)
	}
	r.since = s.served
	f.end = r.got + f.size
	r.reads = append(r.reads, f)
	for n > 0 && r.reads[n-1].end < f.end {
		r.reads[n] = r.reads[n-1]
		n--
	}
	r.reads[n] = f
	s.due.set(node, s.served+(r.reads[len(r.reads)-1].end-r.got)*float64(len(r.reads)))
}

// end finishes the read that ends next, at time now, which next returned.
func (s *source) end(now float64) (node int, f flight) {
	c := s.due.first()
	s.served, s.at = max(s.served, c.key), now
	node = int(c.node)
	r := &s.nodes[node]
	n := len(r.reads) - 1
	f = r.reads[n]
	r.reads = r.reads[:n]
	r.got, r.since = f.end, s.served
	if n == 0 {
		s.gamma--
		s.due.set(node, math.Inf(1))
		return node, f
	}
	s.due.set(node, s.served+(r.reads[n-1].end-r.got)*float64(n))
	return node, f
}

// find returns the read of the node that brings the copy.
func (s *source) find(node int, copyOf int32) *flight {
	reads := s.nodes[node].reads
	for i := range reads {
		if reads[i].copy == copyOf {
			return &reads[i]
		}
	}
	return nil
}
