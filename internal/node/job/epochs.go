package job

import (
	"slices"
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/engine/stage"
	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/report"
)

// state is what reports compare between the beginning and the end of an epoch.
type state struct {
	speeds []model.Speed // of the tiers
	ahead  int           // most batches of a rank that may be staged
	// transformed is what was transformed; nil: samples are delivered unchanged.
	transformed *report.Transformed
}

// mostStates is of how many epochs the states are kept.
const mostStates = 64

// state returns the state of now, with these speeds. j.mu must be held.
func (j *Job) state(speeds []model.Speed) *state {
	s := &state{speeds: speeds}
	for _, r := range j.ranks {
		s.ahead = max(s.ahead, r.stager.Ahead())
	}
	if p := stage.Preprocesses(j.p.Outputs); p != nil {
		s.transformed = p.Report().Total()
	}
	return s
}

// begins notes the state, and what the classes lack, when the first rank begins an epoch.
func (j *Job) begins(epoch int) {
	speeds, lacked := j.p.Cache.Speeds(), int64(0)
	for _, c := range j.p.Dataset.Reports() {
		lacked += c.Lacks()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.since.IsZero() {
		j.since = time.Now()
	}
	if _, known := j.lacked[epoch]; !known {
		j.lacked[epoch] = lacked
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

// changed appends a change; those before reads for the job began come into force then, the last one
// of them alone. j.mu must be held.
func (j *Job) changed(all []report.Change, at time.Time, to int64) []report.Change {
	c := report.Change{Seconds: at.Sub(j.since).Seconds(), To: to}
	if c.Seconds <= 0 || j.since.IsZero() {
		c.Seconds, all = 0, nil
	}
	return append(all, c)
}

// buffers records how large the staging buffers of a job became.
type buffers struct {
	mu  sync.Mutex // guards the following
	all []grown
}

// grown is the size of all staging buffers from a time on.
type grown struct {
	at    time.Time
	bytes int64
}

// mostGrowth is how many changes are recorded, the first ones.
const mostGrowth = 256

// add records that the buffers have this many bytes more.
func (g *buffers) add(bytes int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.all) == mostGrowth {
		return
	}
	if len(g.all) > 0 {
		bytes += g.all[len(g.all)-1].bytes
	}
	g.all = append(g.all, grown{time.Now(), bytes})
}

func (g *buffers) changes() []grown {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.all)
}

// describe sets what the report's epochs have besides what ranks count, and the streams.
func (j *Job) describe(r *report.Report) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for at, to := range j.p.Cache.StreamChanges() {
		r.Streams = j.changed(r.Streams, at, int64(to))
	}
	if p := r.Preprocessing; p != nil {
		for at, to := range stage.Preprocesses(j.p.Outputs).ThreadChanges() {
			p.Changes = j.changed(p.Changes, at, int64(to))
		}
	}
	for _, g := range j.buffers.changes() {
		r.Buffers = j.changed(r.Buffers, g.at, g.bytes)
	}
	last := j.since
	for i := range r.Epochs {
		e := &r.Epochs[i]
		e.Audit = j.audited[e.Epoch].Seconds()
		if began, ended, ok := j.times(e.Epoch); ok {
			if !last.IsZero() {
				e.Pause = max(began.Sub(last).Seconds(), 0)
			}
			last = ended
			r.Ran = last.Sub(j.since).Seconds()
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
		e.Ahead = end.ahead
		e.Transformed = end.transformed.Since(begin.transformed)
	}
}
