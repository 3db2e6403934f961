package job

import (
	"time"

	"github.com/hdmlp/hdmlp/internal/stats"
)

// state is what reports compare between the beginning and the end of an epoch.
type state struct {
	speeds  []stats.Speed // of the tiers
	ahead   int           // most batches of a rank that may be staged
	staging int64         // bytes of all staging buffers
}

// mostStates is of how many epochs the states are kept.
const mostStates = 64

// state returns the state of now, with these speeds. j.mu must be held.
func (j *Job) state(speeds []stats.Speed) *state {
	s := &state{speeds: speeds}
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

// times returns when the first rank requested an epoch's first batch, and when the last one so far
// was yielded; ok is false if there is none. j.mu must be held.
func (j *Job) times(epoch int) (first, last time.Time, ok bool) {
	for _, ledger := range j.ledgers {
		began, ended, some := ledger.Times(epoch)
		if some && (!ok || began.Before(first)) {
			first = began
		}
		if some && ended.After(last) {
			last = ended
		}
		ok = ok || some
	}
	return first, last, ok
}

// describe sets what the report's epochs have besides what ranks count, and the streams.
func (j *Job) describe(r *stats.Report) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, c := range j.p.Cache.StreamChanges() {
		s := stats.Streams{Seconds: c.Time.Sub(j.since).Seconds(), Streams: c.Limit}
		if s.Seconds <= 0 || j.since.IsZero() { // in force when the job began
			s.Seconds, r.Streams = 0, nil
		}
		r.Streams = append(r.Streams, s)
	}
	last := j.since
	for i := range r.Epochs {
		e := &r.Epochs[i]
		if began, ended, ok := j.times(e.Epoch); ok {
			if !last.IsZero() {
				e.Pause = max(began.Sub(last).Seconds(), 0)
			}
			last = ended
		}
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
		e.Ahead, e.Staging = end.ahead, end.staging
	}
}
