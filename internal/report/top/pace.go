package top

import (
	"time"

	"github.com/hdmlp/hdmlp/internal/report"
)

// Snapshot is the jobs' reports at a time.
type Snapshot struct {
	At   time.Time
	Jobs []*report.ClusterReport
}

// job returns the job of this name, or nil.
func (s *Snapshot) job(name string) *report.ClusterReport {
	if s == nil {
		return nil
	}
	for _, j := range s.Jobs {
		if j.Job == name {
			return j
		}
	}
	return nil
}

// node returns a node's report if it has numbers, or nil.
func node(j *report.ClusterReport, number int) *report.NodeReport {
	if j == nil {
		return nil
	}
	for i := range j.Nodes {
		if n := &j.Nodes[i]; n.Node == number && n.Age >= 0 && !n.Assembling {
			return n
		}
	}
	return nil
}

// rank returns a rank's part of a node's report, or nil.
func rank(n *report.NodeReport, number int) *report.RankTally {
	if n == nil {
		return nil
	}
	for i := range n.Ranks {
		if n.Ranks[i].Rank == number {
			return &n.Ranks[i]
		}
	}
	return nil
}

// pace is the difference of two tallies per second. If known is false, the rest is unset.
type pace struct {
	known   bool
	batches float64
	bytes   map[string]float64 // by tier; "source" counts all reads from it
	stall   map[string]float64 // by cause, as a share of the ranks' time, 0 to 1
	ranks   int
}

// between returns the pace from one tally to the next of a number of ranks; it is unknown if no
// time passed. Counters that went back, because a rank restarted, count as zero.
func between(before, now *report.Tally, seconds float64, ranks int) pace {
	if before == nil || seconds <= 0 {
		return pace{}
	}
	p := pace{known: true, bytes: map[string]float64{}, stall: map[string]float64{}, ranks: ranks}
	p.batches = max(0, float64(now.Batches-before.Batches)) / seconds
	for tier, a := range now.Reads {
		p.bytes[tier] = max(0, float64(a.Bytes-before.Reads[tier].Bytes)) / seconds
	}
	p.bytes["source"] = max(0, float64(now.Source.Bytes-before.Source.Bytes)) / seconds
	for cause, s := range now.Stall {
		p.stall[cause] = max(0, s-before.Stall[cause]) / seconds / float64(max(ranks, 1))
	}
	if all := p.stalled(); all > 1 { // a batch reports a stall that began before the interval
		for cause := range p.stall {
			p.stall[cause] /= all
		}
	}
	return p
}

// add adds the pace of other ranks.
func (p *pace) add(o pace) {
	if !o.known {
		return
	}
	if !p.known {
		*p = pace{known: true, bytes: map[string]float64{}, stall: map[string]float64{}}
	}
	p.batches += o.batches
	for tier, b := range o.bytes {
		p.bytes[tier] += b
	}
	if all := p.ranks + o.ranks; all > 0 {
		for cause := range p.stall {
			p.stall[cause] *= float64(p.ranks) / float64(all)
		}
		for cause, s := range o.stall {
			p.stall[cause] += s * float64(o.ranks) / float64(all)
		}
		p.ranks = all
	}
}

// stalled returns the share of time over all causes.
func (p *pace) stalled() (sum float64) {
	for _, s := range p.stall {
		sum += s
	}
	return sum
}

// openRanks counts a node's connected ranks.
func openRanks(n *report.NodeReport) (open int) {
	for _, r := range n.Ranks {
		if r.Open {
			open++
		}
	}
	return open
}

// elapsed returns the time between a node's reports in two snapshots, in seconds.
func elapsed(
	before *Snapshot, old *report.NodeReport, now *Snapshot, n *report.NodeReport,
) float64 {
	return now.At.Sub(before.At).Seconds() - n.Age + old.Age
}

// nodePace returns a node's pace since before. It is unknown for a node that does not answer.
func nodePace(before, now *Snapshot, name string, n *report.NodeReport) pace {
	old := node(before.job(name), n.Node)
	if old == nil || !n.Responding {
		return pace{}
	}
	return between(&old.Tally, &n.Tally, elapsed(before, old, now, n), openRanks(n))
}

// progress is the progress of a job.
type progress struct {
	epoch, step int // next of the rank that is furthest behind
	// share of the job's batches, or of the epoch's if epochs are unlimited, 0 to 1
	done  float64
	left  float64 // batches that this rank still has to take
	speed float64 // batches per second and rank; 0: unknown, or the job stands still
}

// progressOf returns the job's progress, with its speed since before, and reports whether it is
// known.
func progressOf(before, now *Snapshot, j *report.ClusterReport) (progress, bool) {
	least, found := 0, false
	var moved, speeds float64
	for i := range j.Nodes {
		n := &j.Nodes[i]
		if !n.Responding || n.Assembling { // such a node's progress is unknown
			continue
		}
		old := node(before.job(j.Job), n.Node)
		for _, r := range n.Ranks {
			at := r.Epoch*j.Steps + r.Step
			if !r.Open {
				continue
			}
			if !found || at < least {
				least, found = at, true
			}
			if was := rank(old, r.Rank); was != nil {
				if seconds := elapsed(before, old, now, n); seconds > 0 {
					moved += max(0, float64(at-was.Epoch*j.Steps-was.Step)) / seconds
					speeds++
				}
			}
		}
	}
	if !found || j.Steps == 0 {
		return progress{}, false
	}
	p := progress{epoch: least / j.Steps, step: least % j.Steps}
	all, done := j.Steps, p.step
	if j.Planned > 0 {
		all, done = j.Planned*j.Steps, least
	}
	done = min(done, all)
	p.done, p.left = float64(done)/float64(all), float64(all-done)
	if speeds > 0 {
		p.speed = moved / speeds
	}
	return p, true
}
