package analysis

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/model/remedy"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
	"github.com/hdmlp/hdmlp/internal/study/simulate"
)

const (
	// mostSimulated is how many samples of an epoch are simulated. Of a larger dataset a part is,
	// with as much smaller caches, which takes as much less time.
	mostSimulated = 40_000
	// leastBatches is how many global batches an epoch has at least, whatever that takes: at its end
	// nodes wait for each other.
	leastBatches = 40
	// mostAtAll is how many samples are simulated at most: with larger batches, nothing is. Beyond so
	// many nodes nothing is either.
	mostAtAll, mostNodes = 1_000_000, 256
	// simulatedEpochs is how many epochs are simulated; the last one counts.
	simulatedEpochs = 3
	// simulatedStreams is how many samples a node reads at the same time, in the simulator: so many
	// that reading and preparing overlap, as they do in the engine, whose threads do one of both.
	simulatedStreams = 64
)

// epochs simulates the run after changes, under hdmlp's default policy, and returns how long the
// first epoch and a later one take, in seconds; 0 if that would take too long.
func (m *Measured) epochs(ctx context.Context, r *remedy.Run, changes []remedy.Change) (
	first, later float64, err error,
) {
	env, l, _ := remedy.Model(r, changes)
	mb, batch := l.Sample, m.Batch*max(m.Ranks/m.Nodes, 1)*l.Nodes
	samples := min(m.Dataset.Samples, max(mostSimulated, leastBatches*batch))
	if samples > mostAtAll || l.Nodes > mostNodes {
		return 0, 0, nil
	}
	scale := float64(m.Dataset.Samples) / float64(samples)
	job := &simulate.Job{
		Env: env, Nodes: l.Nodes, Sizes: make([]float64, samples), Epochs: simulatedEpochs,
		GlobalBatch: min(batch, samples), Scheme: access.Strided, Seed: 1,
	}
	for i := range job.Sizes {
		job.Sizes[i] = mb
	}
	e := &job.Env
	// The latency of the source is part of its rate.
	e.SourceThroughput = model.Constant(env.NodeSourceRate(l.Nodes, mb) * float64(l.Nodes))
	e.SourceLatency = 0
	threads := float64(max(l.Transformers, 1)) / simulatedStreams
	e.Preprocess, e.SourceWork = e.Preprocess*threads, e.SourceWork/threads
	e.Classes = append([]model.Class(nil), env.Classes...)
	for j := range e.Classes {
		if c := &e.Classes[j]; j > 0 {
			c.Capacity /= scale
			c.Read = model.Constant(env.ClassRate(j, l.Nodes))
		} else {
			c.Capacity, c.Threads = staging(mb, m.Batch, simulatedStreams), simulatedStreams
		}
	}
	result, err := simulate.RunModel(ctx, job, policies.Default().Name())
	switch {
	case err != nil:
		return 0, 0, fmt.Errorf("simulate the job: %w", err)
	case !result.Supported:
		return 0, 0, errors.New("simulate the job: " + result.Reason)
	}
	n := len(result.Epochs)
	return result.Epochs[0] * scale, result.Epochs[n-1] * scale, nil
}

// finite returns v, or 0 for what is infinite, which JSON cannot say.
func finite(v float64) float64 {
	if math.IsInf(v, 0) {
		return 0
	}
	return v
}
