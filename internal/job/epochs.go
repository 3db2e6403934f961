package job

import (
	"time"

	"github.com/hdmlp/hdmlp/internal/stats"
)

// state is what reports compare between the beginning and the end of an epoch.
type state struct {
	speeds  []stats.Speed // of the tiers
	reads   int64         // from the source
	limits  int64         // sum of the limits at their ends
	ahead   int           // most batches of a rank that may be staged
	staging int64         // bytes of all staging buffers
}

// mostStates is of how many epochs the states are kept.
const mostStates = 64

// state returns the state of now, with these speeds. j.mu must be held.
func (j *Job) state(speeds []stats.Speed) *state {
	s := &state{speeds: speeds}
	s.reads, s.limits = j.p.Cache.StreamLimits()
	for _, r := range j.ranks {
		s.ahead = max(s.ahead, r.stager.Ahead())
		s.staging += r.buffer.Limit()
	}
	return s
}

// begins notes the state when the first rank begins an epoch.
func (j *Job) begins(epoch int) {
	speeds := j.p.Cache.Speeds()
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.since.IsZero() {
		j.since = time.Now()
	}
	if j.starts[epoch] == nil && len(j.starts) < mostStates {
		j.starts[epoch] = j.state(speeds)
	}
}

// describe sets what the report's epochs have besides what ranks count.
func (j *Job) describe(r *stats.Report) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range r.Epochs {
		e := &r.Epochs[i]
		begin, end := j.starts[e.Epoch], j.starts[e.Epoch+1]
		if begin == nil {
			continue
		}
		if end == nil {
			end = j.state(r.Tiers)
		}
		for p := range begin.speeds {
			if d := end.speeds[p].Since(&begin.speeds[p]); d.Samples > 0 {
				e.Tiers = append(e.Tiers, d)
			}
		}
		if n := end.reads - begin.reads; n > 0 {
			e.Streams = float64(end.limits-begin.limits) / float64(n)
		}
		e.Ahead, e.Staging = end.ahead, end.staging
	}
}
