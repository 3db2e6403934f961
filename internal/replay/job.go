package replay

import (
	"fmt"
	"slices"

	"github.com/hdmlp/hdmlp/internal/access"
	"github.com/hdmlp/hdmlp/internal/perfmodel"
	"github.com/hdmlp/hdmlp/internal/placement"
	"github.com/hdmlp/hdmlp/internal/placement/policies"
	"github.com/hdmlp/hdmlp/internal/simulate"
	"github.com/hdmlp/hdmlp/internal/stats"
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

// Job returns the run as a job to simulate, with the rates that were measured. sizes returns a
// sample's bytes by ID; if it is nil, all samples have the mean size.
func (r *Run) Job(sizes func(id int) int64, v Variation) (*simulate.Job, error) {
	c := r.report
	nodes := r.nodes()
	stream := r.stream
	if v.Nodes > 0 && v.Nodes != len(nodes) {
		each := len(c.Nodes[0].Ranks)
		world := v.Nodes * each
		var err error
		stream, err = r.newStream(world, max(c.GlobalBatch/c.WorldSize, 1)*world)
		if err != nil {
			return nil, fmt.Errorf("the job on %d nodes: %w", v.Nodes, err)
		}
		like := nodes[0]
		nodes = make([]placement.Node, v.Nodes)
		for i := range nodes {
			nodes[i].Capacity = slices.Clone(like.Capacity)
			for rank := range each {
				nodes[i].Ranks = append(nodes[i].Ranks, i*each+rank)
			}
		}
	}
	job := &simulate.Job{
		Epochs: len(r.Epochs), Sizes: make([]float64, c.Samples),
		Run: &simulate.RunJob{Stream: stream, Nodes: nodes, Step: r.step},
		// what the measure of the order needs
		Nodes: len(nodes), Scheme: access.Scheme(c.Scheme), Seed: c.Seed,
		GlobalBatch: stream.Spec().GlobalBatch, DropLast: c.DropLast,
	}
	for id := range job.Sizes {
		job.Sizes[id] = float64(c.Bytes) / float64(c.Samples) / mega
		if sizes != nil {
			job.Sizes[id] = float64(sizes(id)) / mega
		}
	}
	r.machine(job)
	if v == AsItRan {
		if err := r.hold(job); err != nil {
			return nil, err
		}
	}
	r.vary(nodes, v)
	return job, nil
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

// hold gives the nodes what their classes held when the job began. A report has how much that was,
// not which samples: they are taken to be the first that a plan for empty classes puts there, as an
// earlier run of the same job leaves them.
func (r *Run) hold(job *simulate.Job) error {
	warm := false
	for _, n := range r.report.Nodes {
		for _, class := range n.Classes {
			warm = warm || class.Held.Samples > 0
		}
	}
	if !warm {
		return nil
	}
	policy, err := policies.ByName(r.Policy)
	if err != nil {
		return err
	}
	in, err := simulate.Input(job)
	if err != nil {
		return err
	}
	plan, err := policy.Plan(in)
	if err != nil {
		return fmt.Errorf("policy %s: %w", r.Policy, err)
	}
	for i := range job.Run.Nodes {
		node := &job.Run.Nodes[i]
		node.Held = make([][]int32, len(node.Capacity))
		for j, class := range r.report.Nodes[i].Classes {
			held := int(class.Held.Samples)
			if held >= r.report.Samples { // a class that keeps all that is read
				for id := range r.report.Samples {
					node.Kept = append(node.Kept, int32(id))
				}
				continue
			}
			planned := plan.Nodes[i].Classes[j]
			node.Held[j] = planned[:min(held, len(planned))]
		}
	}
	return nil
}

// machine sets the job's environment to the rates that the run measured (thesis 3.1.1).
func (r *Run) machine(job *simulate.Job) {
	first := &r.report.Nodes[0]
	job.Env = perfmodel.Environment{
		Compute: unmeasured, Preprocess: unmeasured, PeerBandwidth: unmeasured,
		SourceBandwidth:  unmeasured,
		SourceThroughput: perfmodel.Constant(r.rate("source", true)),
	}
	var seconds float64
	var samples int64
	workers := 0
	for _, n := range r.report.Nodes {
		if n.Preprocessing == nil {
			continue
		}
		workers = max(workers, n.Preprocessing.Threads)
		samples += n.Preprocessing.Samples
		for _, t := range n.Preprocessing.Transforms {
			seconds += t.Seconds
		}
	}
	if seconds > 0 {
		mean := float64(r.report.Bytes) / float64(r.report.Samples) / mega
		job.Env.Preprocess = mean * float64(samples) / seconds
	}
	if len(r.report.Nodes) > 1 {
		job.Env.PeerBandwidth = r.link()
	}
	batch := float64(r.report.Bytes) / float64(r.report.Samples) / mega *
		float64(r.report.GlobalBatch) / float64(len(r.report.Nodes))
	staging := float64(first.Prefetch) * batch
	if staging == 0 { // of an earlier version
		staging = float64(first.Staging.Size) / mega
	}
	threads := max(first.Threads, 1)
	job.Env.Classes = append(job.Env.Classes, perfmodel.Class{
		Capacity: max(staging, batch), Threads: max(workers, 1), Read: perfmodel.Constant(unmeasured),
		Write: perfmodel.Constant(unmeasured),
	})
	for _, class := range first.Classes {
		job.Env.Classes = append(job.Env.Classes, perfmodel.Class{
			Capacity: float64(class.Capacity) / mega, Threads: max(threads*3/4, 1),
			Read:  perfmodel.Constant(r.fastest(class.Name)),
			Write: perfmodel.Constant(unmeasured),
		})
	}
}

// link returns what a node receives from the others at most, in MB/s.
func (r *Run) link() float64 {
	most := 0.0
	for _, n := range r.report.Nodes {
		for _, m := range n.Tiers {
			if m.Tier == "peer" {
				most = max(most, m.Peak)
			}
		}
	}
	if most == 0 { // of an earlier version, or nothing was received
		return r.fastest("peer")
	}
	return most
}

// fastest returns what a tier delivered to a node in the epoch in which that was most, in MB/s
// while reads were in progress: in the first epoch a class is written to as well.
func (r *Run) fastest(tier string) float64 {
	var all, most float64 // MB of the run, and the rate
	speeds := make(map[int]stats.Speed)
	for _, n := range r.report.Nodes {
		for _, e := range n.Epochs {
			for _, m := range e.Tiers {
				if m.Tier == tier {
					sum := speeds[e.Epoch]
					sum.Bytes += m.Bytes
					sum.Busy += m.Busy
					speeds[e.Epoch] = sum
					all += float64(m.Bytes)
				}
			}
		}
	}
	for _, s := range speeds {
		if float64(s.Bytes) > all/float64(2*len(speeds)) && s.Busy > 0 {
			most = max(most, float64(s.Bytes)/mega/s.Busy)
		}
	}
	if most == 0 { // of an earlier version
		return r.rate(tier, false)
	}
	return most
}

// rate returns what a tier delivered in MB/s while reads from it were in progress: to a node, or,
// if it is shared, to all nodes together.
func (r *Run) rate(tier string, shared bool) float64 {
	var all stats.Speed
	for _, n := range r.report.Nodes {
		for _, m := range n.Tiers {
			if m.Tier != tier {
				continue
			}
			all.Bytes += m.Bytes
			if shared {
				all.Busy = max(all.Busy, m.Busy)
			} else {
				all.Busy += m.Busy
			}
		}
	}
	if all.Bytes <= 0 || all.Busy <= 0 {
		return unmeasured
	}
	return float64(all.Bytes) / mega / all.Busy
}
