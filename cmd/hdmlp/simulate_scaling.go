package main

import (
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/study/scenario"
	"github.com/hdmlp/hdmlp/internal/study/simulate"
	"github.com/hdmlp/hdmlp/internal/study/simulate/scaling"
)

// analyticalModel returns what the analytical model predicts for a scenario; nil if it does not
// cover the job: batches are divided evenly there, and one job trains.
func analyticalModel(s *scenario.Scenario, job *simulate.Job) *scaling.Prediction {
	if s.Scheme != access.Uniform && s.Scheme != access.Strided || s.Jobs > 1 && !s.Share {
		return nil
	}
	mb := 0.0
	for _, v := range job.Sizes {
		mb += v
	}
	epoch := mb
	if s.DropLast {
		epoch *= float64(s.Steps()*s.GlobalBatch) / float64(len(job.Sizes))
	}
	return scaling.Predict(scaling.Job{
		Env: &s.Env, Nodes: s.Nodes, Dataset: mb, Samples: len(job.Sizes), Epoch: epoch,
		GlobalBatch: s.GlobalBatch, Epochs: s.Epochs,
	})
}
