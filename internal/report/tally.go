// Package report defines the reports of a running job: what its ranks received, where that came
// from, what they waited for, and how the bytes read from the source compare with the lower bound,
// for a node (Report) and for all nodes (ClusterReport). It computes the sums, and summarises them
// in a sentence. As JSON the reports are what `hdmlp stats --json` prints, what Python's report()
// returns and what nodes exchange.
//
// It is pure: values and arithmetic. The packages that run a job fill in the values, and those that
// display one read them.
package report

// Amount is a number of samples and their bytes.
type Amount struct {
	Samples int64 `json:"samples"`
	Bytes   int64 `json:"bytes"`
}

// Add adds another amount.
func (a *Amount) Add(b Amount) {
	a.Samples += b.Samples
	a.Bytes += b.Bytes
}

// Python is the cause of stalls during which the process or its workers made batches in Python
// code.
const Python = "python"

// Writeback is the tier of samples whose copies wait in the daemon's memory to be written to a
// storage class that is slower than the source. Delivering these costs neither the class nor the
// source anything, and is no evidence of how fast they are.
const Writeback = "writeback"

// Tally counts what training loops received, where it came from, and what they waited for.
type Tally struct {
	Batches int64 `json:"batches"`
	Samples int64 `json:"samples"`
	// Seconds is, for an epoch, the time from the request for its first batch to the delivery of
	// its last; otherwise the sum of these over epochs and ranks.
	Seconds float64            `json:"seconds"`
	Stall   map[string]float64 `json:"stall"` // seconds of next(), by cause
	Reads   map[string]Amount  `json:"reads"` // consumed samples, by the tier they were read from
	// what was read from the source; for nodes, including fills of classes and reads for other
	// nodes
	Source Amount `json:"source"`
	// Direct is the part of Source that was read although a cache holds the sample or is to keep
	// it: reading it from there would have taken longer than there was time.
	Direct Amount `json:"direct"`
}

// StallSeconds returns the stall over all causes.
func (t *Tally) StallSeconds() (sum float64) {
	for _, s := range t.Stall {
		sum += s
	}
	return sum
}

// Utilisation returns the share of Seconds in which next() was not blocked; 0 if Seconds is 0.
func (t *Tally) Utilisation() float64 {
	if t.Seconds <= 0 {
		return 0
	}
	return max(0, 1-t.StallSeconds()/t.Seconds)
}

// step returns how long a rank works on a batch, in seconds: the time between batches that next()
// does not take, and what Python code in it makes of them; 0 if fewer than 2 were delivered.
func (e *EpochTally) step() float64 {
	if e.Batches < 2 {
		return 0
	}
	// Seconds ends with the delivery of the last batch.
	return max(e.Seconds-e.StallSeconds()+e.Stall[Python], 0) / float64(e.Batches-1)
}

// Add adds another tally, of other ranks, nodes or epochs.
func (t *Tally) Add(o *Tally) {
	if t.Stall == nil {
		t.Stall, t.Reads = map[string]float64{}, map[string]Amount{}
	}
	t.Batches += o.Batches
	t.Samples += o.Samples
	t.Seconds += o.Seconds
	for cause, s := range o.Stall {
		t.Stall[cause] += s
	}
	for tier, a := range o.Reads {
		sum := t.Reads[tier]
		sum.Add(a)
		t.Reads[tier] = sum
	}
	t.Source.Add(o.Source)
	t.Direct.Add(o.Direct)
}

// EpochTally is the tally of one epoch, for one rank or for several in parallel.
type EpochTally struct {
	Epoch int `json:"epoch"`
	Tally
}

// Add adds another rank's part of the same epoch. Unlike Tally.Add, which adds the times, it keeps
// the longer one.
func (e *EpochTally) Add(o *EpochTally) {
	longer := max(e.Seconds, o.Seconds)
	e.Tally.Add(&o.Tally)
	e.Seconds = longer
}

// positions returns where the ranks are.
func (r *Report) positions() (all []Position) {
	for _, rank := range r.Ranks {
		all = append(all, rank.Position)
	}
	return all
}

// together reports whether ranks are between the same epochs.
func together(ranks []Position) bool {
	for _, p := range ranks {
		if p != ranks[0] || p.Step != 0 {
			return false
		}
	}
	return true
}
