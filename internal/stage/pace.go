package stage

import "time"

// pace estimates how long the process works on a batch, without what it waits for batches, and from
// that when it will need later ones (t_{i,f} of thesis equation 3.2, for a process that never has
// to wait). Batches that come late do not lower it: otherwise a job that is slow because its data
// is would be taken for one that needs no more.
//
// The zero value knows nothing: all batches are needed at once.
type pace struct {
	perBatch float64   // seconds; moving average
	measured bool      // perBatch is set
	last     time.Time // when a batch was last taken; zero: not yet
	blocked  time.Time // when the process began to wait; zero: it does not wait
	waited   float64   // seconds since last for which the process has waited
}

// newest is the weight of the newest batch in the moving average.
const newest = 1.0 / 8

// block records that the process begins to wait for a batch; resume that it is sent one.
func (p *pace) block(now time.Time) { p.blocked = now }

func (p *pace) resume(now time.Time) {
	p.waited += p.waiting(now)
	p.blocked = time.Time{}
}

// waiting returns for how long the process has been waiting, in seconds.
func (p *pace) waiting(now time.Time) float64 {
	if p.blocked.IsZero() {
		return 0
	}
	return now.Sub(p.blocked).Seconds()
}

// took records that the process has taken n batches since the last call.
func (p *pace) took(now time.Time, n int) {
	if !p.last.IsZero() {
		worked := max(now.Sub(p.last).Seconds()-p.waited-p.waiting(now), 0) / float64(n)
		if !p.measured {
			p.perBatch, p.measured = worked, true
		}
		for range min(n, 64) {
			p.perBatch += newest * (worked - p.perBatch)
		}
	}
	p.last, p.waited = now, 0
	if !p.blocked.IsZero() {
		p.blocked = now
	}
}

// due returns when the process needs the batch that comes after `ahead` others that it has not
// taken, in seconds from now.
func (p *pace) due(now time.Time, ahead int) float64 {
	if p.last.IsZero() || ahead < 0 {
		return 0
	}
	worked := 0.0
	if p.blocked.IsZero() {
		worked = now.Sub(p.last).Seconds() - p.waited
		ahead++ // the process still works on the batch that it took last
	}
	return max(float64(ahead)*p.perBatch-max(worked, 0), 0)
}
