package job

import "github.com/hdmlp/hdmlp/internal/node/failure"

// Explanation lists the samples of a step.
type Explanation struct {
	Epoch  int      `json:"epoch"`
	Step   int      `json:"step"`
	Rank   int      `json:"rank"`
	IDs    []int32  `json:"ids"`
	Labels []int    `json:"labels"`
	Paths  []string `json:"paths"` // below the dataset's root
}

// Explain returns the samples that a step had or will have, computed from the seed alone. Epochs
// that the process supplies must be known. Rank -1 is the caller's.
func (r *Rank) Explain(epoch, step, rank int) (*Explanation, error) {
	if rank < 0 {
		rank = r.rank
	}
	if rank >= r.job.config.Request.WorldSize {
		return nil, failure.Input("rank %d out of range: the job's ranks are 0 to %d", rank,
			r.job.config.Request.WorldSize-1)
	}
	if epoch < 0 {
		return nil, failure.Input("epoch %d out of range: epochs count from 0", epoch)
	}
	if steps := r.job.p.Order.Stream().Steps(); step < 0 || step >= steps {
		return nil, failure.Input("step %d out of range: an epoch has %d steps, 0 to %d", step,
			steps, steps-1)
	}
	if err := r.Check(epoch, step); err != nil {
		return nil, err
	}
	x := &Explanation{Epoch: epoch, Step: step, Rank: rank}
	e := r.job.p.Order.Epoch(epoch)
	if e == nil { // it was dropped just now, or other ranks have not supplied their parts
		return nil, failure.Input("the order of epoch %d is not known yet, or no longer", epoch)
	}
	x.IDs = e.Batch([]int32{}, rank, step)
	index := r.job.p.Order.Index()
	for _, id := range x.IDs {
		x.Labels = append(x.Labels, index.Label(int(id)))
		x.Paths = append(x.Paths, index.Name(int(id)))
	}
	return x, nil
}
