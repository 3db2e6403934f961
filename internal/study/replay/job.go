package replay

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
	"github.com/hdmlp/hdmlp/internal/report"
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

// timeout is the default of source_timeout, in seconds: reports do not have the job's.
const timeout = 60

// Simulate runs the job once more in virtual time, with what was measured. sizes returns a sample's
// bytes by ID; if it is nil, all samples have the mean size. The error is a *plan.Unsupported
// if the run's policy cannot plan for the variation.
func (r *Run) Simulate(ctx context.Context, sizes func(id int) int64,
	v Variation,
) (*Result, error) {
	job, err := r.job(ctx, sizes, v)
	if err != nil {
		return nil, err
	}
	result, err := Simulate(ctx, job)
	if err == nil && v != AsItRan {
		result.Doubt = r.formDoubt(job, v)
	}
	return result, err
}

// job returns the run as a job to run again.
func (r *Run) job(ctx context.Context, sizes func(id int) int64,
	v Variation,
) (*Job, error) {
	if v.Memory > 0 {
		r = r.withMemory()
	}
	c := r.report
	source, _ := r.sourceRate()
	job := &Job{
		Stream: r.stream, Epochs: len(r.Epochs), Sizes: make([]int64, c.Samples),
		Source: source.mbps, Link: r.link().mbps, Free: r.Free,
		Known: r.knownAtFirst(), Timeout: timeout, Forms: r.forms(),
	}
	for id := range job.Sizes {
		job.Sizes[id] = int64(math.Round(float64(c.Bytes) / float64(c.Samples)))
		if sizes != nil {
			job.Sizes[id] = sizes(id)
		}
	}
	for _, ran := range r.Epochs {
		job.Steps = append(job.Steps, ran.step)
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
			job.Nodes[i].Classes = slices.Clone(job.Nodes[i].Classes)
		}
	}
	varied := r.vary(nodes, v)
	if err := r.reorder(job, nodes, v); err != nil {
		return nil, err
	}
	return job, r.plan(ctx, job, nodes, varied, v)
}

// reorder puts the job into the order of its policy, as the engine does: made from the capacities
// that were configured, of which a variation of memory changes that of the memory classes. Nodes
// beyond those of the run have those of its first one.
func (r *Run) reorder(job *Job, nodes []plan.Node, v Variation) error {
	if r.report.Reordered == nil { // the policy has none of its own for this job
		return nil
	}
	policy, err := policies.ByName(r.Policy)
	if err != nil {
		return err
	}
	in := plan.Input{
		Stream: job.Stream, Epochs: 1, Nodes: slices.Clone(nodes),
		Size: func(k int) int64 { return max(1, job.Sizes[k]) },
	}
	all := r.report.Reordered.Configured
	for i := range in.Nodes {
		from := i
		if len(nodes) != len(all) {
			from = 0
		}
		classes := r.classes(i, nodes)
		in.Nodes[i].Capacity = make([]int64, len(classes))
		for j, class := range classes {
			capacity := all[from][j]
			switch {
			case class.Name == memoryClass && v.Memory >= 0:
				capacity = v.Memory
			case capacity < 0:
				capacity = plan.Unlimited
			}
			in.Nodes[i].Capacity[j] = capacity
		}
	}
	if in, err = plan.Ordered(policy, in); err == nil {
		job.Stream = in.Stream
		return nil
	}
	if no := (*plan.Unsupported)(nil); errors.As(err, &no) {
		return err
	}
	return fmt.Errorf("policy %s: %w", r.Policy, err)
}

// withMemory returns the run with a memory class of no capacity, as the fastest one, on each node
// that had none.
func (r *Run) withMemory() *Run {
	with, rep := *r, *r.report
	with.report, rep.Nodes = &rep, slices.Clone(rep.Nodes)
	if rep.Reordered != nil {
		order := *rep.Reordered
		order.Configured = slices.Clone(order.Configured)
		rep.Reordered = &order
	}
	for i := range rep.Nodes {
		n := &rep.Nodes[i]
		if slices.ContainsFunc(n.Classes, named(memoryClass)) {
			continue
		}
		n.Classes = slices.Insert(slices.Clone(n.Classes), 0, report.Class{Name: memoryClass})
		if rep.Reordered != nil {
			rep.Reordered.Configured[i] = append([]int64{0}, rep.Reordered.Configured[i]...)
		}
	}
	known := func(k *model.Node) *model.Node {
		if k == nil || slices.ContainsFunc(k.Classes, func(c model.NodeClass) bool {
			return c.Name == memoryClass
		}) {
			return k
		}
		n := *k
		n.Classes = slices.Insert(slices.Clone(k.Classes), 0, model.NodeClass{
			Name: memoryClass, Read: model.GuessedMemory, Write: model.GuessedMemory,
		})
		return &n
	}
	rep.Known, rep.Agreed = known(rep.Known), known(rep.Agreed)
	return &with
}

// nodes returns the run's nodes as policies see them, with empty caches.
func (r *Run) nodes() []plan.Node {
	nodes := make([]plan.Node, len(r.report.Nodes))
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

// classes returns the classes of one of these nodes as they were in the run, or, if there are now
// more or fewer nodes, as those of its first one.
func (r *Run) classes(node int, nodes []plan.Node) []report.Class {
	if len(nodes) != len(r.report.Nodes) {
		node = 0
	}
	return r.report.Nodes[node].Classes
}

// vary returns the nodes with the memory classes of the variation.
func (r *Run) vary(nodes []plan.Node, v Variation) []plan.Node {
	nodes = slices.Clone(nodes)
	for i := range nodes {
		nodes[i].Capacity = slices.Clone(nodes[i].Capacity)
		for j, class := range r.classes(i, nodes) {
			if class.Name == memoryClass && v.Memory >= 0 {
				nodes[i].Capacity[j] = v.Memory
			}
		}
	}
	return nodes
}

// plan makes the job's plan, as the engine makes it: with the environment that the nodes agreed on,
// if any, and with what the classes hold when it begins, which follows from a plan for the nodes
// `before`.
func (r *Run) plan(ctx context.Context, job *Job, before, nodes []plan.Node, v Variation) error {
	policy, err := policies.ByName(r.Policy)
	if err != nil {
		return err
	}
	in := plan.Input{
		Stream: job.Stream, Epochs: openEnd, Nodes: before, Context: ctx,
		Size: func(k int) int64 { return max(1, job.Sizes[k]) },
	}
	planned := func(nodes []plan.Node) (*plan.Plan, error) {
		in := in
		in.Nodes = nodes
		if len(nodes) == len(r.report.Nodes) && len(nodes) != len(before) {
			in.Stream = r.stream
		}
		if agreed := r.report.Agreed; agreed != nil {
			in.Env = plan.EnvironmentOf([]model.Node{*agreed}, nodes, in.MeanSize())
		}
		return policy.Plan(in)
	}
	if r.warm() {
		var left *plan.Plan
		if left, err = planned(before); err == nil {
			r.hold(job, left, nodes)
		}
	}
	if err == nil {
		job.Plan, err = planned(nodes)
	}
	if err == nil && job.Forms.Size > 0 && v != AsItRan {
		err = r.varyForms(job, nodes, planned)
	}
	if no := (*plan.Unsupported)(nil); errors.As(err, &no) {
		return err
	}
	if err != nil {
		return fmt.Errorf("policy %s: %w", r.Policy, err)
	}
	return nil
}

// warm reports whether some class held samples when the job began.
func (r *Run) warm() bool {
	return slices.ContainsFunc(r.report.Nodes, func(n report.NodeReport) bool {
		return slices.ContainsFunc(n.Classes, func(c report.Class) bool { return c.Held.Samples > 0 })
	})
}

// hold gives the nodes what their classes held when the job began, as much of it as they have
// capacity for. A report has how much it was, not which samples: they are taken to be the first
// that a plan for empty classes puts there, as an earlier run of the same job leaves them. Nodes
// beyond those of the run hold as much as the first one.
func (r *Run) hold(job *Job, left *plan.Plan, nodes []plan.Node) {
	for i := range nodes {
		node := &nodes[i]
		node.Held = make([][]int32, len(node.Capacity))
		for j, class := range r.classes(i, nodes) {
			held := int(class.Held.Samples)
			if held == 0 {
				continue
			}
			ids := left.Nodes[i].Classes[j]
			ids = ids[:min(held, len(ids))]
			all := held >= r.report.Samples
			if all || r.keepsAll(class) {
				ids = r.first(ids, held)
			}
			room := node.Capacity[j]
			for n, k := range ids {
				if room -= job.Sizes[k]; room < 0 && node.Capacity[j] < class.Capacity {
					ids, all = ids[:n], false
					break
				}
			}
			if all {
				node.Kept = ids
			} else {
				node.Held[j] = ids
			}
			job.Nodes[i].Classes[j].Held = ids
		}
	}
}

// first returns so many samples: those that are planned, then others.
func (r *Run) first(planned []int32, held int) []int32 {
	all, in := slices.Clone(planned), make([]bool, r.report.Samples)
	for _, k := range planned {
		in[k] = true
	}
	for k := range in {
		if !in[k] && len(all) < held {
			all = append(all, int32(k))
		}
	}
	return all
}
