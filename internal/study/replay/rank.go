package replay

import (
	"github.com/hdmlp/hdmlp/internal/model/meter"
)

// rank is a training process, and what stages its batches (stage.Stager).
type rank struct {
	c      *cluster
	node   *node
	number int
	work   float64 // how many times as long as the job's steps it computes

	staged  []*batch // laid out and not yet taken, in order
	laid    int      // batches laid out, over all epochs
	taken   int
	used    float64  // MB of the staging buffer
	holds   float64  // MB of the batch that the process works on
	asked   bool     // the process has asked for its first batch
	waiting bool     // it waits for a batch
	laying  bool     // the next batch is being laid out
	began   float64  // when it requested the epoch's first batch
	last    []*batch // of each of torch's workers (line)
	turn    int      // the worker that brings the next batch

	pace meter.Pace
}

// batch is a batch that is staged.
type batch struct {
	rank    *rank
	step    int // over all epochs
	left    int // samples that have not arrived
	mb      float64
	arrived map[string]float64 // MB by tier
	// later are read on demand, chain by the batch's worker one after the other, which follows
	// brings next.
	later, chain []task
	follows      *batch
}

// request lets the process ask for its next batch.
func (r *rank) request() {
	if r.taken%r.c.steps == 0 {
		r.began = r.c.events.now
	}
	r.asked, r.waiting = true, true
	r.pace.Block(r.c.events.time())
	r.layOut()
	r.take()
}

// goOn lets the process ask for the next batch, after what it does between epochs.
func (r *rank) goOn() {
	if r.taken == r.c.steps*r.c.job.Epochs {
		r.c.done++
		return
	}
	if r.taken%r.c.steps != 0 {
		r.request()
		return
	}
	r.node.enter(r.taken / r.c.steps)
	r.c.events.after(r.node.limits.Pause, r.request)
}

// take gives the process the next batch, if it waits for one that is there.
func (r *rank) take() {
	if !r.waiting || len(r.staged) == 0 {
		return
	}
	r.staged[0].bringLater()
	if r.staged[0].left > 0 {
		return
	}
	b := r.staged[0]
	r.staged[0] = nil
	r.staged = r.staged[1:]
	now := r.c.events.time()
	r.waiting = false
	r.pace.Resume(now)
	r.pace.Took(now, 1, 0)
	r.taken++
	r.holds = b.mb
	for tier, mb := range b.arrived {
		r.c.delivered[(r.taken-1)/r.c.steps][tier] += mb
	}
	steps := r.c.job.Steps
	r.c.events.after(r.work*steps[min((r.taken-1)/r.c.steps, len(steps)-1)], r.stepped)
	r.layOut()
}

// stepped ends the process's work on a batch.
func (r *rank) stepped() {
	r.used -= r.holds
	r.holds = 0
	if r.taken%r.c.steps == 0 {
		e := r.taken/r.c.steps - 1
		r.c.epochs[e] = max(r.c.epochs[e], r.c.events.now-r.began)
	}
	r.layOut()
	r.c.arrive(r)
}

// layOut lays out batches, as far ahead as the process may be: one after another, as all ranks do
// at the same time.
func (r *rank) layOut() {
	if !r.laying {
		r.laying = true
		r.c.events.after(0, r.layOutOne)
	}
}

func (r *rank) layOutOne() {
	r.laying = false
	c, n := r.c, r.node
	ahead := r.laid - r.taken
	if !r.asked || r.laid == c.steps*c.job.Epochs ||
		ahead >= r.mostAhead() ||
		!c.job.Plan.Prefetch && (!r.waiting || ahead > 0) {
		return
	}
	ids := c.orders.of(r.laid/c.steps).Batch(nil, r.number, r.laid%c.steps)
	need := n.inBuffer(ids)
	if need > 0 && r.used > 0 && r.used+need > n.staging {
		return
	}
	b := &batch{rank: r, step: r.laid, mb: need, arrived: map[string]float64{}}
	r.used += need
	r.staged = append(r.staged, b)
	r.laid++
	n.bringAll(b, ids)
	n.dispatch()
	r.take() // all of it may be in memory
	r.layOut()
}
