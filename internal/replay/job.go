package replay

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/hdmlp/hdmlp/internal/perfmodel"
	"github.com/hdmlp/hdmlp/internal/placement"
	"github.com/hdmlp/hdmlp/internal/placement/policies"
	"github.com/hdmlp/hdmlp/internal/rerun"
)

// Variation is what a what-if question changes of a run. Its zero value changes nothing.
type Variation struct {
	// Memory is the capacity of the memory class of each node, in bytes; negative: as it was.
	Memory int64
	Nodes  int // with as many ranks on each, and as large batches for each rank; 0: as it was
}

// AsItRan changes nothing.
var AsItRan = Variation{Memory: -1}

// memoryClass is the name of the storage class in memory.
const memoryClass = "memory"

// openEnd is the horizon of a plan for a job without an end, in epochs, as in the engine.
const openEnd = 100

// Simulate runs the job once more in virtual time, with what was measured. sizes returns a sample's
// bytes by ID; if it is nil, all samples have the mean size. The error is a *placement.Unsupported
// if the run's policy cannot plan for the variation.
func (r *Run) Simulate(ctx context.Context, sizes func(id int) int64,
	v Variation,
) (*rerun.Result, error) {
	job, err := r.job(ctx, sizes, v)
	if err != nil {
		return nil, err
	}
	return rerun.Run(ctx, job)
}

// job returns the run as a job to run again.
func (r *Run) job(ctx context.Context, sizes func(id int) int64,
	v Variation,
) (*rerun.Job, error) {
	c := r.report
	job := &rerun.Job{
		Stream: r.stream, Epochs: len(r.Epochs), Sizes: make([]int64, c.Samples),
		Source: r.rate("source", true), Link: unmeasured, Step: r.step, Free: r.Free,
	}
	for id := range job.Sizes {
		job.Sizes[id] = int64(math.Round(float64(c.Bytes) / float64(c.Samples)))
		if sizes != nil {
			job.Sizes[id] = sizes(id)
		}
	}
	if len(c.Nodes) > 1 {
		job.Link = r.link()
	}
	if c.Agreed != nil {
		job.Known = *c.Agreed
	}
	for i := range c.Nodes {
		job.Nodes = append(job.Nodes, r.node(i))
	}
	r.begin(job.Nodes)
	nodes := r.nodes()
	if v.Nodes > 0 && v.Nodes != len(nodes) {
		each := len(c.Nodes[0].Ranks)
		world := v.Nodes * each
		var err error
		job.Stream, err = r.newStream(world, max(c.GlobalBatch/c.WorldSize, 1)*world)
		if err != nil {
			return nil, fmt.Errorf("the job on %d nodes: %w", v.Nodes, err)
		}
		nodes, job.Nodes = slices.Repeat(nodes[:1], v.Nodes), slices.Repeat(job.Nodes[:1], v.Nodes)
		for i := range nodes {
			nodes[i].Capacity, nodes[i].Ranks = slices.Clone(nodes[i].Capacity), nil
			for rank := range each {
				nodes[i].Ranks = append(nodes[i].Ranks, i*each+rank)
			}
			job.Nodes[i].Ranks, job.Nodes[i].Start = nodes[i].Ranks, 0
		}
	}
	r.vary(nodes, v)
	return job, r.plan(ctx, job, nodes, v == AsItRan)
}

// nodes returns the run's nodes as policies see them, with empty caches.
func (r *Run) nodes() []placement.Node {
	nodes := make([]placement.Node, len(r.report.Nodes))
	for i := range nodes {
		of := &r.report.Nodes[i]
		for _, rank := range of.Ranks {
			nodes[i].Ranks = append(nodes[i].Ranks, rank.Rank)
		}
		slices.Sort(nodes[i].Ranks)
		for _, class := range of.Classes {
			nodes[i].Capacity = append(nodes[i].Capacity, class.Capacity)
		}
	}
	return nodes
}

// vary changes the nodes' memory classes.
func (r *Run) vary(nodes []placement.Node, v Variation) {
	if v.Memory < 0 {
		return
	}
	for j, class := range r.report.Nodes[0].Classes {
		if class.Name == memoryClass {
			for i := range nodes {
				nodes[i].Capacity[j] = v.Memory
			}
		}
	}
}

// plan makes the job's plan, as the engine makes it: with the environment that the nodes agreed on,
// if any, and, if warm is set, with what the run's classes held when it began.
func (r *Run) plan(ctx context.Context, job *rerun.Job, nodes []placement.Node, warm bool) error {
	policy, err := policies.ByName(r.Policy)
	if err != nil {
		return err
	}
	in := placement.Input{
		Stream: job.Stream, Epochs: openEnd, Nodes: nodes, Context: ctx,
		Size: func(k int) int64 { return max(1, job.Sizes[k]) },
	}
	if agreed := r.report.Agreed; agreed != nil {
		in.Env = placement.EnvironmentOf([]perfmodel.Node{*agreed}, nodes, in.MeanSize())
	}
	if job.Plan, err = policy.Plan(in); err == nil && warm && r.hold(job, in.Nodes) {
		job.Plan, err = policy.Plan(in)
	}
	if no := (*placement.Unsupported)(nil); errors.As(err, &no) {
		return err
	}
	if err != nil {
		return fmt.Errorf("policy %s: %w", r.Policy, err)
	}
	return nil
}

// hold gives the nodes what their classes held when the job began, and reports whether that was
// anything. A report has how much it was, not which samples: they are taken to be the first that a
// plan for empty classes, which the job has, puts there, as an earlier run of the same job leaves
// them.
func (r *Run) hold(job *rerun.Job, nodes []placement.Node) (warm bool) {
	for i := range nodes {
		node := &nodes[i]
		node.Held = make([][]int32, len(node.Capacity))
		for j, class := range r.report.Nodes[i].Classes {
			held := int(class.Held.Samples)
			if held == 0 {
				continue
			}
			warm = true
			ids := job.Plan.Nodes[i].Classes[j]
			ids = ids[:min(held, len(ids))]
			if held >= r.report.Samples { // a class that keeps all that is read
				ids = make([]int32, r.report.Samples)
				for id := range ids {
					ids[id] = int32(id)
				}
				node.Kept = ids
			} else {
				node.Held[j] = ids
			}
			job.Nodes[i].Classes[j].Held = ids
		}
	}
	return warm
}
