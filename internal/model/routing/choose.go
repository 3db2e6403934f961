package routing

// Candidate is a tier that has a sample, as Choose sees it.
type Candidate struct {
	// Arrival is when the sample would be here if it were read from the tier now, including what is
	// queued there: seconds from now.
	Arrival float64
	// Charge is the delay that the read causes to others who share the tier, in seconds, summed over
	// their reads: what it must save at least to be worth it.
	Charge float64
	// Shared is set if other nodes read from the tier as well.
	Shared bool
	// Rate is what the tier gives for longer, in MB/s; 0: it is not known.
	Rate float64
	// Contended is set if tiers share what limits them, such as processors that are all busy.
	Contended bool
}

const (
	// advantage is how many times as soon a sample must arrive from a tier whose reads cost others
	// more to be read from there. It covers the error of predictions, so that noise alone sends no
	// reads to the source.
	advantage = 1.25
	// minGain is by how many seconds it must arrive sooner from a shared tier. Less than that is
	// hidden by reading more samples at the same time: the throughput of a tier whose queue is never
	// empty does not depend on how long the queue is. With 1 ms, nodes with fast links read a sixth
	// of each epoch from the source as well, and epochs took 2.6 times as long. But a node alone has
	// nothing to gain by waiting: where a disk of 80 MB/s spared a few percent of reads from a source
	// in memory, each of them up to 20 ms late, epochs took 1.15 times as long.
	minGain = 20e-3
)

// Choose returns the tier to read a sample from: an index of candidates, of which there is at least
// one. They are ordered by what their reads cost others, least first: own classes, another node,
// the source. due is when the sample is needed, in seconds from now.
//
// Of the tiers that deliver in time, it takes the one that costs others least, unless it delays
// them for longer than the sample would be late from a tier before it. If none delivers in time, it
// takes the fastest, where the delay that a read causes to others counts as its own. So copies
// spare the source as long as they keep up; if they do not, tiers work in parallel, each with as
// many reads as make all of them equally late. But where tiers share what limits them, they take it
// from each other: n reads of one and m of another take the sum of what each takes alone. So every
// read of the slower one makes the epoch longer, and of one that is not several times as fast, too
// few are saved to be sure.
func Choose(due float64, candidates []Candidate) int {
	best := 0
	for i := range candidates {
		it, than := &candidates[i], &candidates[best]
		gain := it.gain(than)
		if than.Arrival <= due {
			break
		}
		better := (it.Arrival+it.Charge)*advantage+gain < than.Arrival+than.Charge
		if it.Arrival <= due { // it saves only how late the other one is
			better = due+it.Charge+gain < than.Arrival+than.Charge
		}
		if better && it.adds(than) {
			best = i
		}
	}
	return best
}

// rateFactor is how many times the rate of another tier one must have that shares with it what
// limits both. The rate of a tier that few reads are sent to is that of what others leave: with a
// factor of 1, nodes on busy processors that had read much from the source went on with that, as
// other nodes seemed slow for it, and epochs took up to four times as long.
const rateFactor = 4

// adds reports whether the tier makes reads faster beside the other one.
func (c *Candidate) adds(to *Candidate) bool {
	return !c.Contended || c.Rate == 0 || to.Rate == 0 || dwarfs(c.Rate, to.Rate)
}

// gain returns by how many seconds a sample must arrive sooner than from another tier. A queue that
// is never empty is worth waiting for as far as the other tier adds to the throughput: beside a
// source of 2 GB/s, a link of 12 MB/s adds half a percent, and samples that it brought 20 ms late
// made epochs up to twice as long.
func (c *Candidate) gain(than *Candidate) float64 {
	switch {
	case !c.Shared:
		return 0
	case dwarfs(c.Rate, than.Rate):
		return minGain * rateFactor * than.Rate / c.Rate
	}
	return minGain
}

// dwarfs reports whether a tier that gives so many MB/s for longer gives several times as much as
// another one; false if the other's rate is not known, which is 0 then.
func dwarfs(rate, other float64) bool { return other > 0 && rate >= rateFactor*other }

// Keeps reports whether a sample that is read is to be kept in memory, which takes supply seconds
// besides the read: if it comes in time all the same, arrival being when it would without that, or
// if that is repaid by later reads from the source that it spares, so many of read seconds each.
func Keeps(due, supply, arrival, read, spares float64) bool {
	return arrival+supply <= due || supply <= spares*read
}
