package simulate

import (
	"context"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/plan/simulated"
)

// The tiers that staging entries and consumed samples are read from. thesisLocal+j is class j of
// the node itself.
const (
	thesisNowhere = iota
	thesisSource
	thesisRemote
	thesisLocal
)

// thesisRun simulates one policy on one job. It shares nothing with other runs.
type thesisRun struct {
	job     *Job
	env     *model.Environment
	rules   simulated.Rules
	machine simulated.Machine // what the policy sees
	stream  *access.Stream
	nodes   []thesisNode
	copies  thesisCopies

	// Rates in MB/s. Those of classes are r_j(p_j), not divided by p_j (section 1, notation).
	sourceRate []float64 // by gamma
	bestSource float64   // the highest of them
	localRate  []float64 // by class
	remoteRate []float64 // by class, min(b_c, r_j(p_j))
	writeRate  float64   // min(beta, r_0(p_0)/p_0)

	turn   int       // round-robin thread counter, shared by all nodes
	newest []float64 // per node, the newer of the newest entries of U_i and P_i
	// per node, the latest time in P_i; later than its newest entry if P_i is unsorted
	latest    []float64
	initStall float64
	dataset   float64  // S
	sourceMB  float64  // read from the source, without the reads in the nodes' held lists
	reads     []Amount // by tier
}

// thesisNode is the state of a node i.
type thesisNode struct {
	reads            []int32 // R_i, of all epochs
	perEpoch         int     // samples of R_i in an epoch
	batch, lastBatch int     // samples of a batch, and of an epoch's last one
	at               int     // the position at which the next batch begins

	// The staging prefetcher. Positions below next have an entry, unless avail is infinite.
	next    int
	avail   []float64
	place   []uint8
	freed   int       // entries of lower positions are dropped
	used    float64   // MB of the staging buffer in use; drifts below zero (3.2)
	charged []uint64  // bit set of the files that have been charged
	clock   []float64 // of the p_0 threads

	// The logs: P_i, and the newest entries of U_i, which is sorted, and of P_i.
	fills                 []float64
	newestUse, newestFill float64

	held    []thesisHeld    // copies, in the order of their reads from the source
	gaps    []thesisGap     // future copies, by pass
	lastUse []uint64        // bit set of the positions that read a sample for the last time
	loaders []*thesisLoader // the last one of each class
}

// batchSize returns how many samples node i reads in a step of an epoch.
func (n *thesisNode) batchSize(step, steps int) int {
	if step == steps-1 {
		return n.lastBatch
	}
	return n.batch
}

// fetchSource is fetch_pfs(k, g): the time to fetch s MB as one of g clients.
func (r *thesisRun) fetchSource(s float64, g int) float64 {
	return r.env.SourceLatency + s/r.sourceRate[g]
}

// logUse appends t to U_i.
func (r *thesisRun) logUse(i int, t float64) {
	n := &r.nodes[i]
	n.newestUse = t
	r.newest[i] = max(t, n.newestFill)
}

// logFill appends t to P_i.
func (r *thesisRun) logFill(i int, t float64) {
	n := &r.nodes[i]
	n.fills = append(n.fills, t)
	n.newestFill = t
	r.newest[i] = max(t, n.newestUse)
	r.latest[i] = max(r.latest[i], t)
}

// clients returns gamma as node i sees it at time t: 1 plus the number of other nodes with a log
// that qualifies (section 1, clients). A log qualifies if its newest entry is not before t. If the
// newest entry is less than 0.1 s before t and the log is unsorted, bisection decides.
func (r *thesisRun) clients(t float64, i int) int {
	g := 1
	for j, newest := range r.newest {
		if newest >= t && j != i {
			g++
		} else if r.latest[j] >= t && j != i && r.nodes[j].newestFill > t-0.1 &&
			bisectsInside(r.nodes[j].fills, t) {
			g++
		}
	}
	return g
}

// bisectsInside reports whether bisect_left(log, t) < len(log) for Python's bisect on a log that
// need not be sorted: whether one of the entries that it visits while moving right is not before t.
func bisectsInside(log []float64, t float64) bool {
	for lo, hi := 0, len(log); lo < hi; {
		mid := (lo + hi) / 2
		if log[mid] >= t {
			return true
		}
		lo = mid + 1
	}
	return false
}

// consume returns when node i gets the sample at position f, of s MB, that it requests at time now
// (section 1, consume).
func (r *thesisRun) consume(i, f int, s, now float64) float64 {
	n := &r.nodes[i]
	avail, staged := inf, uint8(thesisNowhere)
	if f < n.next {
		avail, staged = n.avail[f], n.place[f]
	}
	if avail > now {
		fetch := r.fetchSource(s, r.clients(now, i))
		place := thesisSource
		if len(r.copies.list) > 0 {
			fetch, place = r.demandCopy(i, n.reads[f], s, now, fetch)
		}
		if done := now + (fetch + s/r.writeRate); done < avail {
			if place == thesisSource {
				r.logUse(i, now)
				r.sourceMB += s
			}
			r.count(place, s)
			return done
		}
		now = avail
	}
	if staged == thesisSource {
		r.logUse(i, now)
	}
	r.count(int(staged), s)
	return now
}

// demandCopy returns the smallest of fetch, the time from the source, and the times from copies
// that are available now, with its tier. Ties go to the source, then to the local copy.
func (r *thesisRun) demandCopy(i int, k int32, s, now, fetch float64) (float64, int) {
	place := thesisSource
	copies := r.copies.of(k)
	if own := ownCopy(copies, i); own != nil && own.avail <= now {
		if t := s / r.localRate[own.class]; t < fetch {
			fetch, place = t, thesisLocal+int(own.class)
		}
	}
	for x := len(copies) - 1; x >= 0; x-- { // the highest node that has it by now (3.9)
		if c := &copies[x]; c.avail <= now && int(c.node) != i {
			if t := s / r.remoteRate[c.class]; t < fetch {
				fetch, place = t, thesisRemote
			}
			break
		}
	}
	return fetch, place
}

func (r *thesisRun) count(place int, s float64) {
	a := &r.reads[place]
	a.Samples++
	a.MB += s
}

// free drops the entries of node i before position `to`, which belong to the batch that has ended.
func (r *thesisRun) free(i, to int) {
	n := &r.nodes[i]
	for f := n.freed; f < min(to, n.next); f++ {
		if n.place[f] != thesisNowhere {
			n.used -= r.job.Sizes[n.reads[f]]
		}
	}
	n.freed = to
}

// fill runs the staging prefetcher of node i at the given time (section 1, fill). It has no effect
// unless entries were freed since the last call. A remote copy that is not available would stop it
// where it may read from the source (3.8), but the only policy that uses both has all copies from
// time 0.
func (r *thesisRun) fill(ctx context.Context, i int, time float64) {
	n := &r.nodes[i]
	for x := range n.clock {
		n.clock[x] = max(n.clock[x], time)
	}
	capacity := r.env.Classes[0].Capacity
	for ; n.next < len(n.reads); n.next++ {
		if n.next&0xffff == 0 && ctx.Err() != nil {
			return
		}
		k := n.reads[n.next]
		s := r.job.Sizes[k]
		if n.used+s > capacity {
			return
		}
		now := n.clock[r.turn]
		place := thesisNowhere
		ready := 0.0
		cost := 0.0
		if len(r.copies.list) > 0 {
			place, ready, cost = r.stagingCopy(i, k, s)
		}
		done := max(now, ready) + cost
		if r.rules.Source {
			if read, chosen := r.stagingSource(i, s, now, place, ready, cost); chosen {
				place, done = thesisSource, now+read
				r.logFill(i, now)
				r.sourceMB += s
			}
		}
		n.place[n.next] = uint8(place)
		n.avail[n.next] = inf
		if place != thesisNowhere {
			n.clock[r.turn] = done
			n.avail[n.next] = done
			// charged only the first time (3.2)
			if bit := uint64(1) << (k & 63); n.charged[k>>6]&bit == 0 {
				n.charged[k>>6] |= bit
				n.used += s
			}
		}
		if r.turn++; r.turn == len(n.clock) {
			r.turn = 0
		}
	}
}

// stagingSource reports whether the prefetcher reads s MB from the source at time now rather than
// from the copy that it found, and how long that takes.
func (r *thesisRun) stagingSource(i int, s, now float64, place int,
	ready, cost float64,
) (read float64, chosen bool) {
	write := s / r.writeRate
	must := place == thesisNowhere || ready > now
	if !must && cost <= r.env.SourceLatency+s/r.bestSource+write {
		return 0, false // for every gamma
	}
	read = r.fetchSource(s, r.clients(now, i)) + write
	return read, must || read < cost
}

// stagingCopy returns the copy of file k that the prefetcher of node i would read, available or
// not: the node's own, or, if the policy uses other nodes and the node has no copy or a slower one,
// that of the highest-numbered other node with a copy.
func (r *thesisRun) stagingCopy(i int, k int32, s float64) (place int, ready, cost float64) {
	copies := r.copies.of(k)
	own := ownCopy(copies, i)
	rate := 0.0
	if own != nil {
		place = thesisLocal + int(own.class)
		ready = own.avail
		rate = r.localRate[own.class]
	}
	if last := len(copies) - 1; r.rules.Remote && last >= 0 {
		c := &copies[last]
		if c == own && last > 0 {
			c = &copies[last-1]
		}
		if c != own && (own == nil || rate < r.remoteRate[c.class]) {
			place = thesisRemote
			ready = c.avail
			rate = r.remoteRate[c.class]
		}
	}
	if place == thesisNowhere {
		return place, 0, 0
	}
	return place, ready, s/rate + s/r.writeRate
}
