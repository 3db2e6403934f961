package job

import "github.com/hdmlp/hdmlp/internal/engine/stage"

const mega = 1e6

// maxRate is the largest rate that is reported as measured, in MB/s: a training loop that does
// nothing has no rate.
const maxRate = 1e6

// meanSize returns the mean size of a sample, in MB.
func (j *Job) meanSize() float64 {
	index := j.p.Order.Index()
	return float64(index.Bytes()) / float64(max(index.Len(), 1)) / mega
}

// Consumes returns c: the rate at which the ranks of this node would take samples if they never had
// to wait, in MB/s; 0 if that is not known of all of them.
func (j *Job) Consumes() float64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.pace()
	return j.consumed
}

// pace updates consumed. j.mu must be held.
func (j *Job) pace() {
	rate := 0.0
	size := j.meanSize()
	stream := j.p.Order.Stream()
	for number, r := range j.ranks {
		seconds, ok := r.stager.Work()
		if !ok {
			return
		}
		batch := float64(stream.RankSamples(number)) / float64(max(stream.Steps(), 1)) * size
		rate += batch / max(seconds, batch/maxRate)
	}
	if len(j.ranks) == len(j.config.Ranks) {
		j.consumed = min(rate, maxRate)
	}
}

// Transforms returns beta: the rate at which one thread transforms samples, in MB/s; 0 if that is
// not known.
func (j *Job) Transforms() float64 {
	p := stage.Preprocesses(j.p.Outputs)
	if p == nil {
		return 0
	}
	did := p.Report().Total()
	if did.Samples == 0 || did.Seconds <= 0 {
		return 0
	}
	return min(float64(did.Samples)*j.meanSize()/did.Seconds, maxRate)
}
