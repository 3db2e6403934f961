package routing

// Candidate is a tier that has a sample, as Choose sees it.
type Candidate struct {
	// Arrival is when the sample would be here if it were read from the tier now, including what is
	// queued there: seconds from now.
	Arrival float64
	// Shared is set if other nodes read from the tier as well.
	Shared bool
	// Rate is what the tier gives for longer, in MB/s; 0: it is not known.
	Rate float64
}

// minGain is by how many seconds a sample must arrive sooner from a shared tier whose reads cost
// others more to be read from there. Less than that is hidden by reading more samples at the same
// time: the throughput of a tier whose queue is never empty does not depend on how long the queue
// is. With 1 ms, nodes with fast links read a sixth of each epoch from the source as well, and
// epochs took 2.6 times as long. But a node alone has nothing to gain by waiting: where a disk of
// 80 MB/s spared a few percent of reads from a source in memory, each of them up to 20 ms late,
// epochs took 1.15 times as long.
const minGain = 20e-3

// Choose returns the tier to read a sample from: an index of candidates, of which there is at least
// one. They are ordered by what their reads cost others, least first: own classes, another node,
// the source. due is when the sample is needed, in seconds from now.
//
// Of the tiers that deliver in time, it takes the one that costs others least. If none delivers in
// time, it takes the fastest. So copies spare the source as long as they keep up; if they do not,
// tiers work in parallel, each with as many reads as make all of them equally late.
func Choose(due float64, candidates []Candidate) int {
	best := 0
	for i := range candidates {
		it, than := &candidates[i], &candidates[best]
		// A tier that is in time saves only how late the other one is: nothing if that is in time, too.
		if max(it.Arrival, due)+it.gain(than) < max(than.Arrival, due) {
			best = i
		}
	}
	return best
}

// rateFactor is how many times the rate of another tier a tier has that gives much more.
const rateFactor = 4

// gain returns by how many seconds a sample must arrive sooner than from another tier. A queue that
// is never empty is worth waiting for as far as the other tier adds to the throughput: beside a
// source of 2 GB/s, a link of 12 MB/s adds half a percent, and samples that it brought 20 ms late
// made epochs up to twice as long.
func (c *Candidate) gain(than *Candidate) float64 {
	switch {
	case !c.Shared:
		return 0
	case than.Rate > 0 && c.Rate >= rateFactor*than.Rate:
		return minGain * rateFactor * than.Rate / c.Rate
	}
	return minGain
}

// Keeps reports whether a sample that is read is to be kept in memory, which takes supply seconds
// besides the read: if it comes in time all the same, arrival being when it would without that, or
// if that is repaid by later reads from the source that it spares, so many of read seconds each.
func Keeps(due, supply, arrival, read, spares float64) bool {
	return arrival+supply <= due || supply <= spares*read
}
