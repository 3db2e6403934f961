package job

import "github.com/hdmlp/hdmlp/internal/failure"

// Explanation says which samples a step has.
type Explanation struct {
	Epoch  int      `json:"epoch"`
	Step   int      `json:"step"`
	Rank   int      `json:"rank"`
	IDs    []int32  `json:"ids"`
	Labels []int    `json:"labels"`
	Paths  []string `json:"paths"` // below the dataset's root
}

// Explain says, from the seed alone, which samples a step had or will have; of epochs that the
// process gives, for those that are known. rank -1 is the caller's.
func (r *Rank) Explain(epoch, step, rank int) (*Explanation, error) {
	if rank < 0 {
		rank = r.rank
	}
	if rank >= r.job.config.Request.WorldSize {
		return nil, failure.Input("rank %d is outside the world size %d", rank,
			r.job.config.Request.WorldSize)
	}
	if epoch < 0 || step < 0 || step >= r.job.p.Order.Stream().Steps() {
		return nil, failure.Input("epoch %d, step %d: epochs count from 0, steps are 0 to %d",
			epoch, step, r.job.p.Order.Stream().Steps()-1)
	}
	if err := r.Check(epoch, step); err != nil {
		return nil, err
	}
	x := &Explanation{Epoch: epoch, Step: step, Rank: rank}
	e := r.job.p.Order.Epoch(epoch)
	if e == nil { // it was forgotten just now, or other ranks have not given their parts
		return nil, failure.Input("epoch %d is not known yet, or is over", epoch)
	}
	x.IDs = e.Batch([]int32{}, rank, step)
	index := r.job.p.Order.Index()
	for _, id := range x.IDs {
		x.Labels = append(x.Labels, index.Label(int(id)))
		x.Paths = append(x.Paths, index.Name(int(id)))
	}
	return x, nil
}
