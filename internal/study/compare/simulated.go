package compare

import (
	"context"
	"strconv"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
	"github.com/hdmlp/hdmlp/internal/study/simulate"
)

// Work is a training job and the machine that was measured for it.
type Work struct {
	Node    model.Node // what was measured
	Threads int        // p_0
	Read    float64    // seconds of a processor that a read of the source takes
	Nodes   int
	Epochs  int
	Batch   int // of a rank
	Seed    uint64
	// StepTime is what a rank computes on a batch, in seconds; 0: it takes batches as fast as it can.
	StepTime float64
	// Capacity are the MB that each class of a node has for the whole dataset, and Disks says which
	// are on disks. They are as many as Node.Classes.
	Capacity []float64
	Disks    []bool
}

// ahead is how many batches a rank's staging buffer holds, as far as mostStaging allows (MB).
const (
	ahead       = 64
	mostStaging = 1000.0
)

// Part returns the sizes in MB of a part of a dataset, or of all samples if ids is nil, and its
// share of the dataset's bytes.
func Part(ids []int32, size func(id int) int64, of int) (mb []float64, share float64) {
	total := 0.0
	for id := range of {
		total += float64(size(id))
	}
	if ids == nil {
		mb = make([]float64, of)
		for id := range mb {
			mb[id] = float64(size(id)) / 1e6
		}
		return mb, 1
	}
	part := 0.0
	mb = make([]float64, len(ids))
	for i, id := range ids {
		mb[i] = float64(size(int(id))) / 1e6
		part += float64(size(int(id)))
	}
	return mb, part / max(total, 1)
}

// Job returns the job on samples of these sizes, in MB, which are that share of the dataset: the
// caches hold as much of them as they would of the dataset.
func (w *Work) Job(sizes []float64, share float64) *simulate.Job {
	mean := sum(sizes) / max(float64(len(sizes)), 1)
	size := model.Size{Sample: mean, Nodes: w.Nodes, Staging: w.staging(mean)}
	for _, c := range w.Capacity {
		size.Capacity = append(size.Capacity, c*share)
	}
	node := w.Node
	if !node.Network.IsKnown() {
		node.Network = model.GuessedPeer
	}
	if node.Compute = (model.Value{}); w.StepTime > 0 {
		node.Compute.Number = max(float64(w.Batch)*mean/w.StepTime, 1e-6)
	}
	env := node.Environment(size)
	env.Classes[0].Threads = max(w.Threads, 1)
	env.SourceWork = w.Read
	return &simulate.Job{
		Env: env, Nodes: w.Nodes, Sizes: sizes, Epochs: w.Epochs,
		GlobalBatch: w.Batch * w.Nodes, Seed: w.Seed,
	}
}

// staging returns the MB of a rank's staging buffer.
func (w *Work) staging(mean float64) float64 {
	return max(min(ahead*float64(w.Batch)*mean, mostStaging), 2*float64(w.Batch)*mean)
}

func classKey(j int) string { return strconv.Itoa(j) }

// Unable returns which of the policies cannot run the job, with the reasons of their planners; and
// those that can, in their order.
func Unable(job *simulate.Job, of []plan.Policy) (able []plan.Policy, unable []Left, err error) {
	in, err := simulate.Input(job)
	if err != nil {
		return nil, nil, err
	}
	for _, p := range of {
		why, err := reason(p, in)
		switch {
		case err != nil:
			return nil, nil, err
		case why != "":
			unable = append(unable, Left{p.Name(), why})
		default:
			able = append(able, p)
		}
	}
	return able, unable, nil
}

// Simulate predicts the policies of the rows, the bounds, and the properties that need no run.
// sizes are those of the samples that were read, in MB, and share is their share of the dataset's
// bytes. progress is called with the name of each policy that was simulated.
func (c *Comparison) Simulate(ctx context.Context, w *Work, sizes []float64, share float64,
	progress func(policy string),
) error {
	job := w.Job(sizes, share)
	if err := w.level(ctx, job); err != nil {
		return err
	}
	var err error
	dataset, caches := sum(job.Sizes), job.Env.LocalCapacity()*float64(job.Nodes)
	c.Bound = float64(plan.Bound(int64(dataset*1e6), int64(caches*1e6), job.Epochs)) / 1e6
	if c.TimeBound, err = simulate.TimeBound(ctx, job); err != nil {
		return err
	}
	if c.Perfect, err = w.predict(ctx, job, policies.Bound()); err != nil {
		return err
	}
	for i := range c.Rows {
		r := &c.Rows[i]
		p, err := policies.ForSimulator(r.Policy)
		if err != nil {
			return err
		}
		if r.Simulated, err = w.predict(ctx, job, p); err != nil {
			return err
		}
		if r.Properties, err = w.properties(ctx, p, sizes, share); err != nil {
			return err
		}
		r.Properties.measured(r.Measured, c.Samples, c.Settings.Epochs)
		progress(r.Policy)
	}
	return nil
}

// level makes each step of the job take StepTime. The simulator computes by bytes, and a step is
// over when the rank with the most has computed, which is more than the mean.
func (w *Work) level(ctx context.Context, job *simulate.Job) error {
	if w.StepTime == 0 {
		return nil
	}
	r, err := simulate.Run(ctx, job, policies.Bound())
	if err != nil || r.Runtime <= 0 {
		return err
	}
	steps := (len(job.Sizes) + job.GlobalBatch - 1) / job.GlobalBatch
	job.Env.Compute *= r.Runtime / (float64(steps*job.Epochs) * w.StepTime)
	return nil
}

// predict simulates a policy; nil: it cannot run the job.
func (w *Work) predict(ctx context.Context, job *simulate.Job, policy plan.Policy) (
	*Prediction, error,
) {
	r, err := simulate.Run(ctx, job, policy)
	if err != nil || !r.Supported {
		return nil, err
	}
	return predictionOf(r, w.Disks), nil
}
