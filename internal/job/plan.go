package job

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hdmlp/hdmlp/internal/access"
	"github.com/hdmlp/hdmlp/internal/config/size"
	"github.com/hdmlp/hdmlp/internal/failure"
	"github.com/hdmlp/hdmlp/internal/placement"
	"github.com/hdmlp/hdmlp/internal/placement/policies"
)

const (
	// openEnd is the planning horizon of a stream without an end, in epochs.
	openEnd = 100
	// planAtOnce is how long planning may keep a job from being open; a plan that takes longer is made while batches flow.
	planAtOnce = 50 * time.Millisecond
	// patience is how long planning waits for the first batches, which are wanted more urgently.
	patience = 5 * time.Second
	// margin is how many times the estimate planning may take before ranks have to wait for it.
	margin = 8
)

// makePlan asks the policy for the job's plan, or lets a planner ask it while batches flow.
func (j *Job) makePlan(ctx context.Context) error {
	policy, err := j.node.policy(j.cfg.Policy)
	if err != nil {
		return failure.Input("%v", err)
	}
	in, err := j.planInput(ctx)
	if err != nil {
		return err
	}
	if err := j.node.checkPlan(policies.Memory(in)); err != nil {
		return err
	}
	starter, ok := policy.(placement.Starter)
	if ok && planTime(in) > j.node.planAtOnce {
		j.planner = newPlanner(j, starter, in)
		return nil
	}
	in.Context = ctx
	plan, err := policy.Plan(in)
	if err != nil {
		return err
	}
	j.follow(plan)
	return nil
}

// planInput is what the policy looks at: the nodes with their classes, and what these hold.
func (j *Job) planInput(ctx context.Context) (placement.Input, error) {
	index := j.dataset.Index()
	node := placement.Node{}
	for r := range j.message.WorldSize {
		node.Ranks = append(node.Ranks, r)
	}
	for _, c := range j.dataset.Classes() {
		held := c.Store.Held()
		if c.KeepsAll {
			node.Kept = append(node.Kept, held...) // faster classes may have copies
			held = nil
		}
		node.Capacity = append(node.Capacity, c.Room)
		node.Held = append(node.Held, held)
	}
	in := placement.Input{
		Stream: j.stream.Fixed(), Epochs: j.order.First + openEnd, From: j.order.First, Nodes: []placement.Node{node},
		// An empty file takes no room, and no policy divides by it.
		Size: func(id int) int64 { return max(index.Size(id), 1) },
	}
	if j.others != nil {
		var err error
		if in.Nodes, err = j.others.placementNodes(ctx, node); err != nil {
			return in, err
		}
	}
	j.room = 0
	for _, n := range in.Nodes {
		for _, room := range n.Capacity {
			j.room += room
		}
	}
	return in, nil
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

// me is this node's number.
func (j *Job) me() int {
	if j.others == nil {
		return 0
	}
	return j.others.me
}

// ours is this node's part of a plan: per class, the samples that it is to hold.
func (j *Job) ours(p *placement.Plan) [][]int32 { return p.Nodes[j.me()].Classes }

// adopt lets the plan say what is kept, and who is asked for what.
func (j *Job) adopt(p *placement.Plan) {
	if o := j.others; o != nil {
		o.roster.follow(p, o.rooms, j.dataset.Index().Size, func(now *placement.Plan) {
			j.use.Keep(j.ours(now))
			if now.Remote {
				o.peers.SetOwner(now.OwnerOf)
			}
		})
	} else {
		j.use.Keep(j.ours(p))
	}
	j.plan.Store(p)
}

// follow does what the plan says from now on, for good.
func (j *Job) follow(p *placement.Plan) {
	j.adopt(p)
	if !p.OnRead {
		j.use.Fill(j.needed(j.ours(p)), j.readAhead)
	}
}

// readAhead charges what was read from the source for no batch of this node: to fill classes, or for other nodes.
func (j *Job) readAhead(bytes int64) { j.fillRead.Source(int(j.epochNow.Load()), bytes) }

// prefetches tells whether the staging buffers are filled ahead of time.
func (j *Job) prefetches() bool {
	plan := j.plan.Load()
	return plan == nil || plan.Prefetch // no policy that does not has a planner
}

// caches tells whether some node keeps anything for the job, or will.
func (j *Job) caches() bool {
	plan := j.plan.Load()
	return plan == nil || j.planning() || slices.ContainsFunc(plan.Nodes, func(n placement.NodePlan) bool {
		return slices.ContainsFunc(n.Classes, func(ids []int32) bool { return len(ids) > 0 })
	})
}

// planning tells whether the plan is still being made.
func (j *Job) planning() bool {
	if j.planner == nil {
		return false
	}
	select {
	case <-j.planner.done:
		return false
	default:
		return true
	}
}

// checkPlan refuses a plan that the memory has no room for.
func (n *Node) checkPlan(bytes int64) error {
	return n.checkRoom(bytes, "plan of who caches what", "make memory or epochs smaller, or take policy minio")
}

// adviseRoom tells when the caches hold only a part of the dataset, because every
// epoch then reads the rest again.
func (j *Job) adviseRoom() {
	room, total := j.room, j.need.bytes
	whose := "dataset's"
	switch {
	case j.order.Subset != nil:
		whose = "subset's"
	case j.stream.Spec().Shuffle == access.Given:
		whose = "first epoch's"
	}
	if policy, err := j.node.policy(j.cfg.Policy); room < total && err == nil && policy.About().Copies != placement.NoCopies {
		j.warnings = append(j.warnings, fmt.Sprintf("the caches have room for %s of the %s %s; the rest is read from the source in every epoch: raise memory, or give cache_dir on a fast local disk",
			size.Format(room), whose, size.Format(total)))
	}
}
