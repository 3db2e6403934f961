package simulate

import (
	"context"
	"slices"

	"github.com/hdmlp/hdmlp/internal/access"
	"github.com/hdmlp/hdmlp/internal/perfmodel"
)

// TimeBound returns the least runtime of the job in the profile Model, in seconds, under any policy
// that keeps the order: Environment.TimeBound for what the job reads. It takes a pass over all
// reads. Of several jobs, it is that of the first one, with its part of the threads and everything
// else to itself.
func TimeBound(ctx context.Context, job *Job) (float64, error) {
	if err := job.Env.Validate(); err != nil {
		return 0, err
	}
	w, err := workload(ctx, job)
	if err != nil {
		return 0, err
	}
	return job.Env.TimeBound(w), nil
}

// workload returns what the epochs of the job need.
func workload(ctx context.Context, job *Job) (*perfmodel.Workload, error) {
	stream, err := streamOf(job, 0)
	if err != nil {
		return nil, err
	}
	w := &perfmodel.Workload{
		Largest: slices.Max(job.Sizes), Jobs: job.trainings(),
	}
	if job.Scheme == access.Whole {
		w.Readers = job.Nodes
	}
	first := 0.0 // MB: the smallest first sample of a node
	seen := make([]uint64, len(job.Sizes)/64+1)
	whole := false // every sample was seen
	left := len(job.Sizes)
	var ids []int32
	for e := range job.Epochs {
		order := stream.Epoch(e)
		d := perfmodel.Demand{Nodes: make([]float64, job.Nodes)}
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
