package replay

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
)

// Job is a job that ran, or would run, on a machine.
type Job struct {
	Stream *access.Stream
	Plan   *plan.Plan
	Epochs int     // that are run
	Sizes  []int64 // bytes of each sample
	Nodes  []Node
	Source float64 // MB/s that the source gives all nodes together
	Link   float64 // b_c: MB/s that a node sends, and that it receives
	// Steps are the seconds that a rank computes on a batch, in each epoch; the last ones hold for
	// later epochs as well.
	Steps []float64
	// Free is set if ranks do not wait for each other after each step.
	Free bool
	// Known is what nodes knew of their tiers when the job began.
	Known   model.Node
	Timeout float64     // seconds that one read may take in all (source_timeout); 0: no limit
	Forms   model.Forms // without Time, for which epochs have rates
}

// Node is a node of a job.
type Node struct {
	Ranks []int
	// Work is how many times as long as the job's Steps each of Ranks computes on a batch; nil: 1.
	Work    []float64
	Classes []Class // fastest first
	// Result is the size of a result in the staging buffer, in MB; 0: that of the sample.
	Result float64
	// Start is when the node begins to read, in seconds after the first one.
	Start float64
	// InForce are the limits of each epoch; the last ones hold for later epochs as well.
	InForce []InForce
	// Streams is how many samples are read from the source at the same time, and Staging the MB of a
	// rank's staging buffer, by the time since Start. The first values are those of the beginning.
	Streams, Staging []Change
	// Threads is likewise how many samples are transformed at the same time; nil: they are delivered
	// as they are.
	Threads []Change
}

// Class is a storage class of a node.
type Class struct {
	Name   string
	Memory bool    // samples are delivered from where they are
	Rate   float64 // MB/s of reads, if not in memory
	// Write is the MB/s that it is written at beside reads; 0: what is read is there at once.
	Write float64
	// KeepAll is set if it keeps all that is read, besides what the plan assigns to it.
	KeepAll bool
	Held    []int32 // what it holds at the start
}

// Change is a new value, and from when on it is in force, in seconds.
type Change struct{ At, To float64 }

// InForce are a node's limits in an epoch.
type InForce struct {
	Ahead int // batches of a rank that are staged and not yet taken
	// Pause is the seconds before the ranks request the first batch: of the first epoch, after the
	// node's Start, or after all nodes have filled their classes if training begins then.
	Pause float64
	// Transform is the seconds that a thread transforms for per MB, if there are Threads; of forms it
	// is Form, and Forms is the share of these in what comes from memory and other nodes.
	Transform, Form, Forms float64
	// Read is, by class, the MB/s of reads if it differs from Class.Rate; 0, or nil: it does not.
	Read []float64
}

// Result is what the run came to.
type Result struct {
	Epochs  []float64 // seconds of each
	Runtime float64   // of all, and of what is before them, in seconds
	// BeforeTraining is when all nodes had filled their classes, in seconds; 0: training does not
	// wait for that.
	BeforeTraining float64
	Source         float64 // MB that were read from the source
	Direct         float64 // the part of it that was read although a cache holds the sample
	// Delivered has the MB that ranks were given, by tier: source, peer, writeback, or the name of a
	// class.
	Delivered map[string]float64
	// DeliveredIn has the same for each epoch.
	DeliveredIn []map[string]float64
	// Written has the MB that were written to each class that is not in memory.
	Written map[string]float64
	// Doubt is what the job would also do with the memory of a variation, and is not in the result;
	// "": nothing is known to be missing.
	Doubt string
}

const perMega = 1e6

// errStuck reports a bug.
var errStuck = errors.New("replay: nothing is left to happen before the end of the job (a bug)")

// looks is the number of events between two checks whether ctx is done.
const looks = 1 << 14

// Run runs the job. It returns an error if the job is impossible, or ctx is done.
func Simulate(ctx context.Context, job *Job) (*Result, error) {
	if err := job.validate(); err != nil {
		return nil, err
	}
	c := newCluster(job)
	for events := 0; !c.over(); events++ {
		if events%looks == 0 {
			if err := context.Cause(ctx); err != nil {
				return nil, err
			}
		}
		if !c.events.next() {
			return nil, errStuck
		}
	}
	return c.finish(), nil
}

func (j *Job) validate() error {
	positive := func(what string, v float64) error {
		if !(v > 0) || math.IsInf(v, 1) {
			return fmt.Errorf("replay: %s is %v MB/s; it must be above 0 and finite", what, v)
		}
		return nil
	}
	errs := []error{positive("the source", j.Source), positive("the link", j.Link)}
	if j.Epochs < 1 {
		errs = append(errs, fmt.Errorf("replay: %d epochs; there must be at least one", j.Epochs))
	}
	if len(j.Steps) == 0 {
		errs = append(errs, errors.New("replay: it is not said how long a step takes"))
	}
	for e, step := range j.Steps {
		if !(step >= 0) || math.IsInf(step, 1) {
			errs = append(errs, fmt.Errorf("replay: a step of epoch %d takes %v s", e, step))
		}
	}
	for i := range j.Nodes {
		n := &j.Nodes[i]
		for _, c := range n.Classes {
			if !c.Memory {
				errs = append(errs, positive(c.Name, c.Rate))
			}
			if !(c.Write >= 0) || math.IsInf(c.Write, 1) {
				errs = append(errs, fmt.Errorf("replay: %s is written at %v MB/s", c.Name, c.Write))
			}
		}
		for _, f := range n.InForce {
			if f.Ahead < 1 || !(f.Pause >= 0) || !(f.Transform >= 0) || !(f.Form >= 0) ||
				!(f.Forms >= 0 && f.Forms <= 1) {
				errs = append(errs, fmt.Errorf("replay: node %d has impossible limits: %+v", i, f))
			}
			for _, rate := range f.Read {
				if rate != 0 {
					errs = append(errs, positive("a class in an epoch", rate))
				}
			}
		}
		for _, c := range slices.Concat(n.Streams, n.Staging, n.Threads) {
			if !(c.To > 0) || !(c.At >= 0) {
				errs = append(errs, fmt.Errorf("replay: node %d has an impossible change: %+v", i, c))
			}
		}
		for _, times := range n.Work {
			if !(times >= 0) || math.IsInf(times, 1) {
				errs = append(errs, fmt.Errorf("replay: a rank of node %d computes %v times as long", i,
					times))
			}
		}
		if n.Work != nil && len(n.Work) != len(n.Ranks) {
			errs = append(errs, fmt.Errorf("replay: node %d has %d ranks, and the work of %d", i,
				len(n.Ranks), len(n.Work)))
		}
		if !(n.Start >= 0) || math.IsInf(n.Start, 1) {
			errs = append(errs, fmt.Errorf("replay: node %d begins after %v s", i, n.Start))
		}
		if len(n.InForce) == 0 || len(n.Streams) == 0 || len(n.Staging) == 0 || len(n.Ranks) == 0 {
			errs = append(errs, fmt.Errorf("replay: node %d has no limits or no ranks", i))
		}
	}
	return errors.Join(errs...)
}

// cluster is the job while it runs.
type cluster struct {
	job    *Job
	events events
	source queue
	nodes  []*node
	ranks  []*rank

	arrived   int // ranks that wait at the barrier
	done      int // ranks that have ended
	epochs    []float64
	sourceMB  float64
	directMB  float64
	delivered []map[string]float64 // by epoch
	written   map[string]float64
	// filling is how many nodes have not filled their classes, if training waits for that, and
	// before when all had.
	filling int
	before  float64
	steps   int // of an epoch
	orders  orders
}

func newCluster(job *Job) *cluster {
	c := &cluster{
		job: job, source: queue{perMB: 1 / job.Source}, written: map[string]float64{},
		epochs: make([]float64, job.Epochs), steps: job.Stream.Steps(),
		orders: orders{stream: job.Stream},
	}
	for range job.Epochs {
		c.delivered = append(c.delivered, map[string]float64{})
	}
	for i := range job.Nodes {
		c.nodes = append(c.nodes, newNode(c, i))
	}
	for _, n := range c.nodes {
		for at, number := range n.spec.Ranks {
			r := &rank{c: c, node: n, number: number, work: 1}
			if n.spec.Work != nil {
				r.work = n.spec.Work[at]
			}
			n.ranks, c.ranks = append(n.ranks, r), append(c.ranks, r)
		}
	}
	for _, r := range c.ranks {
		r.pace.Ranks = len(c.ranks)
	}
	for _, n := range c.nodes {
		c.events.at(n.spec.Start, func() { n.enter(0) })
		for _, s := range n.spec.Streams[1:] {
			c.events.at(n.spec.Start+s.At, func() { n.admit(int(s.To)) })
		}
		for _, s := range n.spec.Staging[1:] {
			c.events.at(n.spec.Start+s.At, func() { n.grow(s.To) })
		}
		for _, s := range n.spec.Threads[min(1, len(n.spec.Threads)):] {
			c.events.at(n.spec.Start+s.At, func() { n.threads.open(int(s.To)) })
		}
	}
	if job.Plan.Preload {
		for _, n := range c.nodes {
			if n.unfilled > 0 {
				c.filling++
			}
		}
	}
	if c.filling == 0 {
		for _, r := range c.ranks {
			c.events.at(r.node.spec.Start+r.node.spec.InForce[0].Pause, r.request)
		}
	}
	return c
}

// filled records that a node has filled its classes. If training waits for that, it begins once all
// have.
func (c *cluster) filled() {
	if c.filling == 0 {
		return
	}
	if c.filling--; c.filling > 0 {
		return
	}
	c.before = c.events.now
	for _, r := range c.ranks {
		c.events.after(r.node.spec.InForce[0].Pause, r.request)
	}
}

func (c *cluster) over() bool { return c.done == len(c.ranks) }

// arrive records that a rank has finished a step, and the next begins when all have, or at once if
// ranks do not wait for each other.
func (c *cluster) arrive(r *rank) {
	if c.job.Free {
		r.goOn()
		return
	}
	if c.arrived++; c.arrived < len(c.ranks) {
		return
	}
	c.arrived = 0
	for _, r := range c.ranks {
		r.goOn()
	}
}

func (c *cluster) finish() *Result {
	all := map[string]float64{}
	for _, epoch := range c.delivered {
		for tier, mb := range epoch {
			all[tier] += mb
		}
	}
	return &Result{
		Epochs: c.epochs, Runtime: c.events.now, Source: c.sourceMB, Direct: c.directMB,
		BeforeTraining: c.before, Delivered: all, DeliveredIn: c.delivered, Written: c.written,
	}
}

// orders keeps the orders of the epochs that ranks are in.
type orders struct {
	stream *access.Stream
	recent []*access.Epoch
}

// kept is of how many epochs the order is kept.
const kept = 4

func (o *orders) of(number int) *access.Epoch {
	for _, e := range o.recent {
		if e.Number() == number {
			return e
		}
	}
	e := o.stream.Epoch(number)
	if len(o.recent) == kept {
		o.recent = append(o.recent[:0], o.recent[1:]...)
	}
	o.recent = append(o.recent, e)
	return e
}
