// Package stats says what a running job tells of itself: what its ranks were given, where that came
// from, what they waited for, and how much of the least possible left the source; on a node
// (Report), and on all nodes (ClusterReport). It adds these up, and says in a sentence what they
// mean. As JSON they are what `hdmlp stats --json` prints, what Python's report() returns and what
// nodes tell each other.
//
// It is pure: values and arithmetic. The rooms that run a job fill the values in, those that show
// one read them.
package stats

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

// Python is the cause of what stalls have of the time in which the process or its workers made
// batches with code in Python.
const Python = "python"

// Tally counts what training loops were given, where it came from, and what they waited for.
type Tally struct {
	Batches int64 `json:"batches"`
	Samples int64 `json:"samples"`
	// Seconds is, of an epoch, the time from asking for its first batch to yielding its last;
	// otherwise the sum of these over epochs and ranks.
	Seconds float64            `json:"seconds"`
	Stall   map[string]float64 `json:"stall"` // seconds of next(), by cause
	Reads   map[string]Amount  `json:"reads"` // consumed samples by the place they were read from
	// what left the source; of nodes, filling of classes and reads for others included
	Source Amount `json:"source"`
}

// StallSeconds is the stall over all causes.
func (t *Tally) StallSeconds() (sum float64) {
	for _, s := range t.Stall {
		sum += s
	}
	return sum
}

// Utilisation is the share of Seconds in which next() was not blocked; 0 if there are none.
func (t *Tally) Utilisation() float64 {
	if t.Seconds <= 0 {
		return 0
	}
	return max(0, 1-t.StallSeconds()/t.Seconds)
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
	for place, a := range o.Reads {
		sum := t.Reads[place]
		sum.Add(a)
		t.Reads[place] = sum
	}
	t.Source.Add(o.Source)
}

// EpochTally is one epoch, of a rank or of several at the same time.
type EpochTally struct {
	Epoch int `json:"epoch"`
	Tally
}

// Add adds another rank's part of the same epoch. Unlike Tally's, which counts the time of both, it
// keeps the longer one.
func (e *EpochTally) Add(o *EpochTally) {
	longer := max(e.Seconds, o.Seconds)
	e.Tally.Add(&o.Tally)
	e.Seconds = longer
}
