package simulate

import (
	"context"
	"fmt"
	"slices"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/plan/access"
)

// TimeBound returns the least runtime of the job in the profile Model, in seconds, under any policy
// that keeps the order: Environment.TimeBound for what the job reads. It takes a pass over all
// reads of each job. Of several jobs, it is that of the one that takes longest, with its part of
// the threads and everything else to itself. Samples take the time of forms, if there are forms.
func TimeBound(ctx context.Context, job *Job) (float64, error) {
	if err := job.Env.Validate(); err != nil {
		return 0, err
	}
	if err := job.Forms.Validate(); err != nil {
		return 0, fmt.Errorf("simulate: %w", err)
	}
	job = job.formed()
	bound := 0.0
	for k := range job.trainings() {
		w, err := workload(ctx, job, k)
		if err != nil {
			return 0, err
		}
		bound = max(bound, job.Env.TimeBound(w))
	}
	return bound, nil
}

// workload returns what the epochs of one of the jobs need.
func workload(ctx context.Context, job *Job, number int) (*model.Workload, error) {
	stream, err := streamOf(job, number)
	if err != nil {
		return nil, err
	}
	w := &model.Workload{
		Largest: slices.Max(job.Sizes), Jobs: job.trainings(),
	}
	if job.Scheme == access.Whole {
		w.Readers = job.Nodes
	}
	first := 0.0 // MB: the smallest first sample of a node
	near := newNear(job, w.Largest)
	seen := make([]uint64, len(job.Sizes)/64+1)
	whole := false // every sample was seen
	left := len(job.Sizes)
	var ids []int32
	for e := range job.Epochs {
		order := stream.Epoch(e)
		d := model.Demand{
			Nodes: make([]float64, job.Nodes), Shared: make([]float64, job.Nodes),
		}
		for step := range stream.Steps() {
			if err := context.Cause(ctx); err != nil {
				return nil, err
			}
			heaviest := 0.0
			for i := range job.Nodes {
				ids = order.Batch(ids[:0], i, step)
				load := 0.0
				for _, k := range ids {
					load += job.Sizes[k]
				}
				if e == 0 && step == 0 && len(ids) > 0 && (i == 0 || job.Sizes[ids[0]] < first) {
					first = job.Sizes[ids[0]]
				}
				heaviest = max(heaviest, load)
				d.Nodes[i] += load
				d.Shared[i] += near.needs(i, ids, load)
				if whole {
					continue
				}
				for _, k := range ids {
					if seen[k>>6]&(1<<(k&63)) == 0 {
						seen[k>>6] |= 1 << (k & 63)
						d.New += job.Sizes[k]
						left--
					}
				}
			}
			d.Compute += heaviest / job.Env.Compute
			near.next()
		}
		whole = left == 0
		w.Epochs = append(w.Epochs, d)
	}
	fastest := 0.0
	for gamma := 1; gamma <= job.Nodes; gamma++ {
		fastest = max(fastest, job.Env.SourceRate(gamma))
	}
	w.First = job.Env.SourceLatency + first/fastest + job.Env.Write(first)
	return w, nil
}

// near finds the samples of which one read may serve two epochs: a node may ask for a sample, for
// the later one, while it is read for the earlier one. Nodes start each step together, so that it
// does so only if its staging buffer holds all that it consumes in the steps between.
type near struct {
	job    *Job
	staged float64 // MB that a staging buffer holds
	step   int32   // over all epochs, from 1
	last   []int32 // step that last needed a sample; 0: none did
	now    []int32 // samples of this step
	nodes  []window
}

// window is the steps before the current one in which a node consumes no more than its staging
// buffer holds.
type window struct {
	first int32     // the earliest of them
	loads []float64 // MB of each
	sum   float64
}

func newNear(job *Job, largest float64) *near {
	n := &near{
		job: job, staged: max(job.Env.Classes[0].Capacity, largest), step: 1,
		last: make([]int32, len(job.Sizes)), nodes: make([]window, job.Nodes),
	}
	for i := range n.nodes {
		n.nodes[i].first = 1
	}
	return n
}

// needs returns the MB of the samples, which a node needs in this step, that a read for an earlier
// step may serve as well. load is the MB of all of them.
func (n *near) needs(node int, ids []int32, load float64) (mb float64) {
	w := &n.nodes[node]
	for _, k := range ids {
		if last := n.last[k]; last > 0 && last+1 >= w.first {
			mb += n.job.Sizes[k]
		}
	}
	n.now = append(n.now, ids...)
	w.loads, w.sum = append(w.loads, load), w.sum+load
	for len(w.loads) > 0 && w.sum > n.staged {
		w.sum -= w.loads[0]
		w.first, w.loads = w.first+1, w.loads[1:]
	}
	return mb
}

// next ends the step.
func (n *near) next() {
	for _, k := range n.now {
		n.last[k] = n.step
	}
	n.now = n.now[:0]
	n.step++
}
