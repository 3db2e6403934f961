package meter

import (
	"cmp"
	"slices"
	"time"
)

// Pace estimates how long a process works on a batch, without what it waits for batches, and from
// that when it will need later ones (t_{i,f} of thesis equation 3.2, for a process that never has
// to wait). Batches that come late do not lower it: otherwise a job that is slow because its data
// is would be taken for one that needs no more.
//
// What counts is the mean of the batches that took least (Least): all but an eighth, and fewer of
// ranks that wait for each other. So a first batch that takes long, a pause between epochs and a
// process that was stopped do not count. Reports that come at the same moment, as after this
// process was stopped, are one measurement: only together did they take the time since the report
// before.
//
// The zero value has no measurement. A Pace is not safe for concurrent use.
type Pace struct {
	// Ranks is how many ranks wait for each other in each step; 0: the process is alone. A rank that
	// waits for another one, whose data are late, seems to work. If that counted, all ranks would
	// take their data for needed no sooner than the slowest one has them: so what is due is counted
	// by the steps in which the rank was the last one (Least).
	Ranks int

	perBatch float64   // seconds; see Ranks
	begun    time.Time // when the first report of the last measurement came
	last     time.Time // when a batch was last taken; zero: not yet
	blocked  time.Time // when the process began to wait; zero: it does not wait
	waited   float64   // seconds since last for which the process has waited

	works [remembered]work // the last measurements; a ring
	count int              // how many there were
}

// work is a measurement of the time per batch.
type work struct {
	seconds float64 // per batch
	batches int     // how many batches were taken in it
}

// and returns two measurements as one.
func (w work) and(v work) work {
	n := w.batches + v.batches
	return work{(w.seconds*float64(w.batches) + v.seconds*float64(v.batches)) / float64(n), n}
}

// moment is how far the reports of one measurement are apart at most.
const moment = time.Millisecond

// remembered is how many measurements of the time per batch are kept for Least.
const remembered = 128

// assumed is for how many seconds a process works on a batch that has not taken any. Too much costs
// it at most that, once, and too little costs reads that nothing needed so soon.
const assumed = 1.0

// Block records that the process begins to wait for a batch.
func (p *Pace) Block(now time.Time) { p.blocked = now }

// Resume records that the process is sent a batch.
func (p *Pace) Resume(now time.Time) {
	p.waited += p.waiting(now)
	p.blocked = time.Time{}
}

// waiting returns for how long the process has been waiting, in seconds.
func (p *Pace) waiting(now time.Time) float64 {
	if p.blocked.IsZero() {
		return 0
	}
	return now.Sub(p.blocked).Seconds()
}

// Took records that the process has taken n batches since the last call, and reports that it was
// blocked for the last of them for stall, besides Python code that made it; 0: it was not, or that
// is not known. That is longer than from Block to Resume by the time after which the process runs
// again, which on busy processors is as long as a step, and is not spent if a batch is there.
func (p *Pace) Took(now time.Time, n int, stall time.Duration) {
	if !p.last.IsZero() {
		waited := max(p.waited+p.waiting(now), stall.Seconds())
		worked := max(now.Sub(p.last).Seconds()-waited, 0)
		p.measure(now, work{worked / float64(n), n})
	}
	p.last, p.waited = now, 0
	if !p.blocked.IsZero() {
		p.blocked = now
	}
}

// measure adds a measurement that was reported now.
func (p *Pace) measure(now time.Time, m work) {
	if p.count > 0 && now.Sub(p.begun) < moment {
		last := &p.works[(p.count-1)%remembered]
		*last = last.and(m)
	} else {
		p.works[p.count%remembered] = m
		p.begun = now
		p.count++
	}
	p.perBatch, _ = p.Least(LastShare(p.Ranks))
}

// leastShare is the least share of batches that a time is computed from, and aloneShare that of a
// process without others: an eighth may be pauses, and of long and short batches in turn the mean
// is found within a fourth.
const leastShare, aloneShare = 1.0 / 32, 7.0 / 8

// LastShare returns over which share of the batches each of so many ranks, which wait for each
// other in each step, computes how long it works: half of those in which it is the last one if all
// are alike, because by chance it may be so in fewer, and what it waits in others would count. Of a
// process that is alone those that took longest may be due to something else.
func LastShare(ranks int) float64 {
	if ranks <= 1 {
		return aloneShare
	}
	return max(0.5/float64(ranks), leastShare)
}

// Due returns when the process needs the batch that comes after `ahead` others that it has not
// taken, in seconds from now. Before it has taken one, it needs the first at once, and is assumed
// to work for a second on each; while it works on the first, for as long as it has so far, and a
// second at least.
func (p *Pace) Due(now time.Time, ahead int) float64 {
	switch {
	case ahead < 0:
		return 0
	case p.last.IsZero():
		return assumed * float64(ahead)
	}
	worked := max(now.Sub(p.last).Seconds()-p.waited-p.waiting(now), 0)
	perBatch := p.perBatch
	if p.count == 0 {
		if perBatch = worked; p.blocked.IsZero() {
			perBatch = max(worked, assumed) // how long it will take is not known yet
		}
	}
	if p.blocked.IsZero() { // the process still works on the batch that it took last
		return max(float64(ahead+1)*perBatch-worked, 0)
	}
	return float64(ahead) * perBatch
}

// Least returns the mean of the least times that the process has lately worked on a batch, in
// seconds: over this share of the batches, and over one at least. Ranks that wait for each other in
// each step seem to work while another one waits for data: only the steps in which a rank is the
// last one tell how long it works. ok is false if nothing is known yet.
func (p *Pace) Least(share float64) (seconds float64, ok bool) {
	works, batches := p.sorted()
	if batches == 0 {
		return 0, false
	}
	count := max(int(share*float64(batches)), 1)
	left := count
	for _, w := range works {
		n := min(left, w.batches)
		seconds += float64(n) * w.seconds
		left -= n
	}
	return seconds / float64(count), true
}

// sorted returns the last measurements, least first, and how many batches they are of.
func (p *Pace) sorted() (works []work, batches int) {
	works = slices.Clone(p.works[:min(p.count, remembered)])
	slices.SortFunc(works, func(a, b work) int { return cmp.Compare(a.seconds, b.seconds) })
	for _, w := range works {
		batches += w.batches
	}
	return works, batches
}

// pauseFactor is how many times as long as the median batch one takes at least that was a pause,
// such as an evaluation: busy processors make a step twice as long, and less often four times.
const pauseFactor = 4

// Work returns how long the process works on a batch, in seconds, as epochs have it: the mean of
// the last batches, with all that took long for no reason of their own, which Least leaves out.
// Only pauses are left out, an eighth of the batches at most. Ranks that wait for each other have
// no better measurement than Least. ok is false if nothing is known yet.
func (p *Pace) Work() (seconds float64, ok bool) {
	share := LastShare(p.Ranks)
	works, batches := p.sorted()
	if p.Ranks > 1 || batches == 0 {
		return p.Least(share)
	}
	var sum work
	median := works[0].seconds
	for _, w := range works {
		if 2*sum.batches < batches {
			median = w.seconds
		}
		if sum.batches >= int(share*float64(batches)) && w.seconds > pauseFactor*median {
			break
		}
		sum = sum.and(w)
	}
	return sum.seconds, true
}

// Last returns when a batch was last taken; the zero time: not yet.
func (p *Pace) Last() time.Time { return p.last }
