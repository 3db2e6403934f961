// Package planner decides which plan a job goes by: it asks the policy for one, at once or while
// batches flow, follows it together with the other nodes, and keeps it in step with which of these
// are there.
//
// It does not read samples: what a plan has a node keep and read ahead, its Use does, and whom it
// asks, its Nodes do. All methods of Planner are safe for concurrent use.
package planner

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hdmlp/hdmlp/internal/access"
	"github.com/hdmlp/hdmlp/internal/failure"
	"github.com/hdmlp/hdmlp/internal/placement"
	"github.com/hdmlp/hdmlp/internal/placement/policies"
)

const (
	// openEnd is the planning horizon of a stream without an end, in epochs.
	openEnd = 100
	// planAtOnce is how long planning may keep a job from being open; a plan that takes longer is
	// made while batches flow.
	planAtOnce = 50 * time.Millisecond
)

// Nodes are the nodes of a job, to a planner.
type Nodes interface {
	// Rooms tells the other nodes what this one's classes have room for and hold, and returns what
	// all say, with their ranks.
	Rooms(ctx context.Context, mine placement.Node) ([]placement.Node, error)
	// Leads tells the others how far this node will come before it has a plan, and returns what all
	// say. An epoch has so many steps.
	Leads(ctx context.Context, mine placement.Lead, steps int) ([]placement.Lead, error)
	// Planned waits until all nodes that are there have their plans.
	Planned(ctx context.Context) error
	// Watch has note called for every node that is gone now, and whenever one goes or comes back,
	// one call at a time.
	Watch(note func(node int, there bool))
	// SetOwner says which node is asked for a sample.
	SetOwner(owner func(id int) int)
}

// Use does what a plan says on this node. Sets of samples are given per storage class.
type Use interface {
	// Keep says which samples are kept, if they are read.
	Keep(classes [][]int32)
	// Fill has samples read ahead; read is told of the bytes that left the source for it.
	Fill(classes [][]int32, read func(bytes int64))
}

// Class is a storage class of this node.
type Class struct {
	Room     int64
	Held     []int32
	KeepsAll bool // what is read, beside what plans give it
}

// Strategy is how plans are made. The zero value: as the room decides.
type Strategy struct {
	// Policy finds a policy by its name; nil: policies.ByName.
	Policy func(name string) (placement.Policy, error)
	// AtOnce is how long planning may keep a job from being open. 0: 50 ms; negative: every plan
	// that can be is made while batches flow.
	AtOnce time.Duration
}

// Options are what a planner is given.
type Options struct {
	Strategy
	Name   string         // of the policy
	Stream *access.Stream // of the job
	First  int            // the epoch that the job begins with
	Size   func(id int) int64
	// Needed leaves of each class what is worth reading ahead.
	Needed  func(classes [][]int32) [][]int32
	Classes []Class
	Use     Use
	Read    func(bytes int64) // told of what is read ahead
	Me      int               // this node's number
	Nodes   Nodes             // nil: the job has one node
	// Turns: ranks give their parts of epochs, so that a later one may have anything.
	Turns bool
	// Staged is how many batches the rank that is furthest has staged.
	Staged func() int
	Ahead  int // batches that may be staged and not taken
	// Admit refuses a plan that the memory has no room for.
	Admit func(bytes int64) error
	// Fail ends the job, because there is no plan.
	Fail func(error)
	Log  *slog.Logger
}

// Planner has the plan of a job on one node.
type Planner struct {
	o      Options
	about  placement.About
	nodes  []placement.Node // without what they hold, which is in the plan
	roster roster
	// plan is the plan in force; nil until planning has produced one.
	plan      atomic.Pointer[placement.Plan]
	meanwhile *meanwhile    // nil: the plan was there at once
	done      chan struct{} // closed when planning has ended
}

// New asks the policy for the job's plan, or starts to have it made while batches flow. Close ends
// the planner.
func New(ctx context.Context, o Options) (*Planner, error) {
	o.Policy, o.AtOnce = orElse(o.Policy, policies.ByName), cmp.Or(o.AtOnce, planAtOnce)
	p := &Planner{o: o, done: make(chan struct{})}
	policy, err := o.Policy(o.Name)
	if err != nil {
		return nil, failure.Input("%v", err)
	}
	p.about = policy.About()
	in, err := p.input(ctx)
	if err != nil {
		return nil, err
	}
	p.nodes = capacities(in.Nodes)
	if err := o.Admit(policies.Memory(in)); err != nil {
		return nil, err
	}
	if o.Nodes != nil {
		o.Nodes.Watch(p.roster.note)
	}
	if starter, ok := policy.(placement.Starter); ok && planTime(in) > o.AtOnce {
		p.meanwhile = startMeanwhile(p, starter, in)
		return p, nil
	}
	in.Context = ctx
	plan, err := policy.Plan(in)
	if err != nil {
		return nil, err
	}
	p.follow(plan)
	close(p.done)
	return p, nil
}

func orElse[F any](f, other func(string) (F, error)) func(string) (F, error) {
	if f == nil {
		return other
	}
	return f
}

// Keeps reports whether the policy has the classes hold samples.
func (p *Planner) Keeps() bool { return p.about.Copies != placement.NoCopies }

// Close ends the planning. The plan stays in force.
func (p *Planner) Close() {
	if p.meanwhile != nil {
		p.meanwhile.close()
	}
}

// input is what the policy looks at: the nodes with their classes, and what these hold.
func (p *Planner) input(ctx context.Context) (placement.Input, error) {
	o, node := &p.o, placement.Node{}
	for r := range o.Stream.Spec().WorldSize {
		node.Ranks = append(node.Ranks, r)
	}
	for _, c := range o.Classes {
		held := c.Held
		if c.KeepsAll {
			node.Kept = append(node.Kept, held...) // faster classes may have copies
			held = nil
		}
		node.Capacity = append(node.Capacity, c.Room)
		node.Held = append(node.Held, held)
	}
	in := placement.Input{
		Stream: o.Stream.Fixed(), Epochs: o.First + openEnd, From: o.First,
		Nodes: []placement.Node{node},
		// An empty file takes no room, and no policy divides by it.
		Size: func(id int) int64 { return max(o.Size(id), 1) },
	}
	if o.Nodes != nil {
		var err error
		if in.Nodes, err = o.Nodes.Rooms(ctx, node); err != nil {
			return in, err
		}
	}
	return in, nil
}

// capacities are nodes without what they hold.
func capacities(nodes []placement.Node) []placement.Node {
	out := slices.Clone(nodes)
	for i := range out {
		out[i].Held, out[i].Kept = nil, nil
	}
	return out
}

// Memory is about how many bytes it takes to make a plan for so many nodes.
func Memory(stream *access.Stream, first, nodes int) int64 {
	return policies.Memory(placement.Input{
		Stream: stream,
		From:   first,
		Epochs: first + openEnd,
		Nodes:  make([]placement.Node, nodes),
	})
}

// planTime estimates how long one core takes to make the plan.
func planTime(in placement.Input) time.Duration {
	const perSample, perRead = 300, 30 // ns
	epochs := cmp.Or(in.Stream.Spec().Epochs, in.Epochs)
	switch {
	case len(in.Nodes) == 1:
		epochs = 1
	case in.Stream.Spec().Shuffle == access.Given:
		epochs = len(in.Stream.GivenEpochs())
	}
	samples := float64(in.Stream.Spec().Samples)
	return time.Duration(samples * (perSample + perRead*float64(epochs)))
}

// ours is this node's part of a plan: per class, the samples that it is to hold.
func (p *Planner) ours(plan *placement.Plan) [][]int32 { return plan.Nodes[p.o.Me].Classes }

// adopt lets the plan say what is kept, and who is asked for what.
func (p *Planner) adopt(plan *placement.Plan) {
	if p.o.Nodes != nil {
		p.roster.follow(plan, p.nodes, p.o.Size, func(now *placement.Plan) {
			p.o.Use.Keep(p.ours(now))
			if now.Remote {
				p.o.Nodes.SetOwner(now.OwnerOf)
			}
		})
	} else {
		p.o.Use.Keep(p.ours(plan))
	}
	p.plan.Store(plan)
}

// follow does what the plan says from now on, for good.
func (p *Planner) follow(plan *placement.Plan) {
	p.adopt(plan)
	if !plan.OnRead {
		p.o.Use.Fill(p.o.Needed(p.ours(plan)), p.o.Read)
	}
}

// Plan is the plan in force; nil: nothing has been read yet, and there is none.
func (p *Planner) Plan() *placement.Plan { return p.plan.Load() }

// Room is how many bytes the storage classes of all nodes have.
func (p *Planner) Room() (sum int64) {
	for _, n := range p.nodes {
		for _, room := range n.Capacity {
			sum += room
		}
	}
	return sum
}

// Prefetches reports whether the staging buffers are filled ahead of time.
func (p *Planner) Prefetches() bool {
	plan := p.plan.Load()
	return plan == nil || plan.Prefetch // no policy that does not is planned meanwhile
}

// Caches reports whether some node keeps anything for the job, or will.
func (p *Planner) Caches() bool {
	plan := p.plan.Load()
	return plan == nil || p.Planning() ||
		slices.ContainsFunc(plan.Nodes, func(n placement.NodePlan) bool {
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

// Done is closed when the plan is there for good, or cannot be made.
func (p *Planner) Done() <-chan struct{} { return p.done }

// Begin notes that the node begins to read, at a step. As long as there is no plan, the first call
// decides what is kept.
func (p *Planner) Begin(epoch, step int) error {
	if p.meanwhile == nil {
		return nil
	}
	return p.meanwhile.begin(epoch, step)
}

// Feeds notes that a rank has got a batch.
func (p *Planner) Feeds(rank int) {
	if p.meanwhile != nil {
		p.meanwhile.feeds(rank)
	}
}

// Gate lets a batch be staged, or waits until it may be; nil: all may be, because the plan is
// there.
func (p *Planner) Gate() func(ctx context.Context, epoch, step int) error {
	if p.meanwhile == nil {
		return nil
	}
	return p.meanwhile.may
}

// ReadsOnce reports whether a node that is asked for a sample reads it from the source. A node that
// has not begun does not know yet what it is to keep: the others wait until it has.
func (p *Planner) ReadsOnce(ctx context.Context) (bool, error) {
	if p.meanwhile != nil {
		select {
		case <-p.meanwhile.begun:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	plan := p.plan.Load()
	return plan != nil && plan.ReadOnce, nil
}
