// Package planner manages the placement plan of a job: it has the policy make one, at once or while
// batches flow, switches to it together with the other nodes, and adapts it as nodes leave and come
// back.
//
// It does not read samples: Use keeps and reads ahead what the plan assigns, and Nodes reaches the
// other nodes. All methods of Planner are safe for concurrent use.
package planner

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/node/failure"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
	"github.com/hdmlp/hdmlp/internal/plan/reorder"
)

const (
	// openEnd is the planning horizon of a stream without an end, in epochs.
	openEnd = 100
	// planAtOnce is the longest estimated planning time for which a job waits when it is opened; a
	// plan that takes longer is made while batches flow.
	planAtOnce = 50 * time.Millisecond
)

// Nodes gives a planner access to the nodes of a job.
type Nodes interface {
	// Capacities sends the others the capacity of this node's storage classes and what they hold,
	// and returns those of all nodes, with their ranks.
	Capacities(ctx context.Context, mine plan.Node) ([]plan.Node, error)
	// BootstrapWindows sends the others this node's bootstrap window, how far it may read before it
	// has a plan, and returns those of all nodes. steps is the number of steps in an epoch.
	BootstrapWindows(ctx context.Context, mine plan.BootstrapWindow,
		steps int) ([]plan.BootstrapWindow, error)
	// Preloaded waits until all nodes that are alive have filled their classes.
	Preloaded(ctx context.Context) error
	// Planned waits until all nodes that are alive have their plans.
	Planned(ctx context.Context) error
	// Watch has note called for every node that is gone now, and whenever a node goes or comes
	// back. Calls do not overlap.
	Watch(note func(node int, there bool))
	// SetOwner sets the function that returns which node is asked for a sample.
	SetOwner(owner func(id int) int)
}

// Use carries out a plan on this node. Sets of samples are given by storage class.
type Use interface {
	// Keep sets which samples are kept when they are read.
	Keep(classes [][]int32)
	// Fill reads samples ahead; read is called with the bytes read from the source for that.
	Fill(classes [][]int32, read func(bytes int64))
	// Filled waits until what Fill began has been brought, as far as it can be.
	Filled(ctx context.Context, note func(bytes, of int64)) error
}

// Class is a storage class of this node.
type Class struct {
	Capacity int64 // capacity in bytes
	Held     []int32
	KeepsAll bool // whether it keeps everything that is read, besides what plans assign to it
}

// Strategy is how plans are made. The zero value is the default.
type Strategy struct {
	// Policy returns the policy with a name; nil: policies.ByName.
	Policy func(name string) (plan.Policy, error)
	// AtOnce is the longest estimated planning time for which a job waits when it is opened. 0: 50
	// ms; negative: every plan is made while batches flow, if the policy allows it.
	AtOnce time.Duration
}

// Local is what a planner has on its node, whatever the job.
type Local struct {
	Strategy
	Classes []Class // when the job is opened
	// Known returns what is known of this node's tiers; nil: nothing, and plans are made without an
	// environment.
	Known func() model.Node
	Me    int   // this node's number
	Nodes Nodes // nil: the job has one node
}

// Options are the options of a planner. Package job makes them.
type Options struct {
	Local
	Name   string         // of the policy
	Stream *access.Stream // of the job
	First  int            // the first epoch of the job
	Size   func(id int) int64
	// Needed reduces each class's samples to those that are worth reading ahead.
	Needed func(classes [][]int32) [][]int32
	Use    Use
	Read   func(bytes int64) // called with the bytes that are read ahead
	// Turns is set if ranks supply their parts of epochs: a later epoch may have any samples then.
	Turns bool
	// Staged returns how many batches the rank that is furthest ahead has staged.
	Staged func() int
	Ahead  int // most batches staged and not yet taken
	// Admit returns an error if there is not enough memory for a plan.
	Admit func(bytes int64) error
	// Fail ends the job if the plan cannot be made.
	Fail func(error)
	Log  *slog.Logger
}

// Planner holds the plan of a job on one node.
type Planner struct {
	o        Options
	about    plan.About
	nodes    []plan.Node // when the job was opened; without what they hold
	failover failover
	// plan is the plan in force; nil until planning has produced one.
	plan      atomic.Pointer[plan.Plan]
	mean      float64            // size of a sample, MB
	env       *model.Environment // that the plan is made with; nil: too little was known
	agreed    *model.Node        // what env is made of, or nil
	bootstrap *bootstrap         // nil: the plan was made at once
	done      chan struct{}      // closed when the plan is made
}

// New has the policy make the job's plan, or starts that in the background if it takes long. Close
// ends the planner.
func New(ctx context.Context, o Options) (*Planner, error) {
	o.Policy, o.AtOnce = orElse(o.Policy, policies.ByName), cmp.Or(o.AtOnce, planAtOnce)
	p := &Planner{o: o, done: make(chan struct{})}
	policy, err := o.Policy(o.Name)
	if err != nil {
		return nil, failure.Input("%v", err)
	}
	p.about = policy.About()
	in, agreed, err := p.gather(ctx)
	if err != nil {
		return nil, err
	}
	p.nodes = capacities(in.Nodes)
	p.mean = in.MeanSize()
	p.agreed = agreed
	p.env = in.Env
	if err := o.Admit(policies.Memory(in)); err != nil {
		return nil, err
	}
	if o.Nodes != nil {
		o.Nodes.Watch(p.failover.note)
	}
	if starter, ok := policy.(plan.Starter); ok && planTime(in) > o.AtOnce {
		p.bootstrap = startBootstrap(p, starter, in)
		return p, nil
	}
	in.Context = ctx
	plan, err := policy.Plan(in)
	if err != nil {
		return nil, Refused(err)
	}
	p.follow(plan)
	close(p.done)
	return p, nil
}

// Refused converts the error of a policy that cannot run a job into one that says what to do.
func Refused(err error) error {
	var no *plan.Unsupported
	if !errors.As(err, &no) {
		return err
	}
	return failure.Input("policy = %s cannot run this job: %s", no.Policy, no.Reason)
}

func orElse[F any](f, other func(string) (F, error)) func(string) (F, error) {
	if f == nil {
		return other
	}
	return f
}

// Keeps reports whether the policy has storage classes hold samples.
func (p *Planner) Keeps() bool { return p.about.Copies != plan.NoCopies }

// Close ends planning. The plan remains in force.
func (p *Planner) Close() {
	if p.bootstrap != nil {
		p.bootstrap.close()
	}
}

// ours returns this node's part of a plan: by class, the samples to hold.
func (p *Planner) ours(plan *plan.Plan) [][]int32 { return plan.Nodes[p.o.Me].Classes }

// adopt makes plan decide what is kept and which nodes are asked, without reading ahead.
func (p *Planner) adopt(planned *plan.Plan) {
	if p.o.Nodes != nil {
		p.failover.follow(planned, p.nodes, p.o.Size, func(now *plan.Plan) {
			p.o.Use.Keep(p.ours(now))
			if now.Remote {
				p.o.Nodes.SetOwner(now.OwnerOf)
			}
		})
	} else {
		p.o.Use.Keep(p.ours(planned))
	}
	p.plan.Store(planned)
}

// follow adopts a plan, and starts to read ahead by it.
func (p *Planner) follow(plan *plan.Plan) {
	p.adopt(plan)
	if !plan.OnRead {
		p.o.Use.Fill(p.o.Needed(p.ours(plan)), p.o.Read)
	}
}

// Known returns what is known of this node's tiers now; nil: nothing.
func (p *Planner) Known() *model.Node {
	if p.o.Known == nil {
		return nil
	}
	known := p.o.Known()
	return &known
}

// Environment returns the environment that the plan is made with, on all nodes; nil: too little was
// known of their tiers.
func (p *Planner) Environment() *model.Environment { return p.env }

// Agreed returns what that environment is made of, or nil.
func (p *Planner) Agreed() *model.Node { return p.agreed }

// FillsAtOnce reports whether the node has begun to read ahead into its storage classes when the
// job was opened.
func (p *Planner) FillsAtOnce() bool {
	plan := p.plan.Load()
	return p.bootstrap == nil && !plan.OnRead && p.Caches()
}

// LiveEnvironment returns the environment of nodes of which the same is known as of this one now;
// nil: too little.
func (p *Planner) LiveEnvironment() *model.Environment {
	known := p.Known()
	if known == nil {
		return nil
	}
	return plan.EnvironmentOf([]model.Node{*known}, p.nodes, p.mean)
}

// Preload waits until all nodes have filled their classes, if the plan is that training begins
// then; preloads reports whether it is. note is called with the bytes so far, and of all, on this
// node.
func (p *Planner) Preload(ctx context.Context, note func(bytes, of int64)) (preloads bool,
	err error,
) {
	if plan := p.Plan(); plan == nil || !plan.Preload {
		return false, nil
	}
	if err := p.o.Use.Filled(ctx, note); err != nil {
		return true, err
	}
	if p.o.Nodes != nil {
		return true, p.o.Nodes.Preloaded(ctx)
	}
	return true, nil
}

// CacheFirst reports whether what a class has is not read from the source.
func (p *Planner) CacheFirst() bool {
	plan := p.Plan()
	return plan != nil && plan.CacheFirst
}

// Demand returns what reports whether a sample is read only when training requests it; nil: none
// is.
func (p *Planner) Demand() func(id int) bool {
	if plan := p.Plan(); plan == nil || !plan.Demand {
		return nil
	}
	return func(id int) bool { return p.Plan().OwnerOf(id) < 0 }
}

// Window returns what limits how far a rank reads ahead; nil: its staging buffer does.
func (p *Planner) Window() *plan.Window {
	if plan := p.Plan(); plan != nil {
		return plan.Window
	}
	return nil
}

// NodeOf returns the node of each rank, and the number of nodes.
func (p *Planner) NodeOf() (nodeOf []int32, nodes int) {
	return reorder.NodeOf(&plan.Input{Stream: p.o.Stream, Nodes: p.nodes}), len(p.nodes)
}

// Plan returns the plan in force; nil until the node has begun to read.
func (p *Planner) Plan() *plan.Plan { return p.plan.Load() }

// Capacity returns the total capacity of the storage classes of all nodes, in bytes.
func (p *Planner) Capacity() (sum int64) {
	for _, n := range p.nodes {
		for _, capacity := range n.Capacity {
			sum += capacity
		}
	}
	return sum
}

// Prefetches reports whether the staging buffers are filled ahead of time.
func (p *Planner) Prefetches() bool {
	plan := p.plan.Load()
	return plan == nil || plan.Prefetch // all policies that plan in the background prefetch
}

// Caches reports whether some node keeps samples for the job, or will.
func (p *Planner) Caches() bool {
	planned := p.plan.Load()
	return planned == nil || p.Planning() ||
		slices.ContainsFunc(planned.Nodes, func(n plan.NodePlan) bool {
			return slices.ContainsFunc(n.Classes, func(ids []int32) bool { return len(ids) > 0 })
		})
}

// Planning reports whether the plan is still being made.
func (p *Planner) Planning() bool {
	select {
	case <-p.Done():
		return false
	default:
		return true
	}
}

// Done returns a channel that is closed when the final plan is in force, or cannot be made.
func (p *Planner) Done() <-chan struct{} { return p.done }

// Begin records that this node begins to read at a step. If there is no plan yet, the first call
// decides what is kept until then.
func (p *Planner) Begin(epoch, step int) error {
	if p.bootstrap == nil {
		return nil
	}
	return p.bootstrap.begin(epoch, step)
}

// Feeds records that a rank has a batch.
func (p *Planner) Feeds(rank int) {
	if p.bootstrap != nil {
		p.bootstrap.feeds(rank)
	}
}

// Gate returns a function that returns when a batch may be staged; nil: all may be staged, because
// the plan was made at once.
func (p *Planner) Gate() func(ctx context.Context, epoch, step int) error {
	if p.bootstrap == nil {
		return nil
	}
	return p.bootstrap.gate
}

// ReadsOnce reports whether this node reads a sample from the source if another node asks for it.
// It waits until this node has begun, because only then is it known what the node is to keep.
func (p *Planner) ReadsOnce(ctx context.Context) (bool, error) {
	if p.bootstrap != nil {
		select {
		case <-p.bootstrap.begun:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	plan := p.plan.Load()
	return plan != nil && plan.ReadOnce, nil
}
