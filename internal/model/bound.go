package model

import "slices"

// Demand is what one epoch of a job needs from a machine.
type Demand struct {
	// Compute is the time that training takes if no node ever waits for data, in seconds: for each
	// batch the longest computation of any node, because all nodes start a batch together.
	Compute float64
	// Nodes has the MB that each node consumes.
	Nodes []float64
	// New is the MB of the samples that no earlier epoch needed, each counted once.
	New float64
	// Shared has the MB of Nodes that a read for an earlier epoch may serve as well, because they are
	// needed so soon after that the staging buffer may hold them already then; nil: none.
	Shared []float64
}

// Workload is a job as TimeBound sees it.
type Workload struct {
	Epochs []Demand
	// Largest is the MB of the largest sample; 0 if it is not known, and fits the staging buffer.
	Largest float64
	// Readers is how many nodes read each sample in an epoch; 0 means 1.
	Readers int
	// Jobs is how many such jobs the threads of a node are divided among; 0 means 1.
	Jobs int
	// First is the least time from the start until training has its first sample, in seconds.
	First float64
}

// TimeBound returns a lower bound of the runtime of a job on nodes with this environment, in
// seconds, for any policy that keeps the order of the samples: the time before training, in which a
// policy may fill classes, included. docs/SIMULATOR.md derives it.
//
// Each run of consecutive epochs has a least time (span.least), and the runs of a division of the
// epochs follow one another. The bound is that of the best division; of many epochs, of the best
// one in which runs that begin after the second epoch have one epoch.
func (e *Environment) TimeBound(w *Workload) float64 {
	if len(w.Epochs) == 0 {
		return 0
	}
	best := make([]float64, len(w.Epochs)+1) // best[b]: of the epochs before b
	for a := range w.Epochs {
		s, end := newSpan(e, w, a), len(w.Epochs)
		if a > 1 && end > manyEpochs {
			end = a + 1
		}
		for b := a; b < end; b++ {
			s.add(&w.Epochs[b])
			best[b+1] = max(best[b+1], best[a]+s.least())
		}
	}
	return best[len(w.Epochs)]
}

// manyEpochs is from when on TimeBound does not try all divisions, whose number is quadratic.
const manyEpochs = 256

// span is a run of consecutive epochs: from the start of its first epoch until the end of its last.
// If its first epoch is the job's, it starts with the job, whose caches and staging buffers are
// empty.
type span struct {
	env *Environment
	job *Workload

	start  bool // it starts with the job
	epochs int

	compute float64
	nodes   []float64 // MB consumed, per node
	shared  []float64 // of these, MB that reads for earlier epochs of the span may serve
	total   float64   // of all nodes
	fresh   float64   // MB that must leave the source in the span

	staged float64   // MB that a staging buffer may hold at the start
	rates  []float64 // MB/s that each class from 1 gives, at its best number of reads
	source float64   // MB/s that the source gives all nodes, at most
	alone  float64   // MB/s that it gives one node, at most
	peers  float64   // MB/s that a node gets from all others, at most
}

func newSpan(e *Environment, w *Workload, first int) *span {
	n := len(w.Epochs[first].Nodes)
	s := &span{
		env: e, job: w, start: first == 0, nodes: make([]float64, n), shared: make([]float64, n),
	}
	if s.start {
		s.compute = w.First
	} else {
		// A sample that is larger than the buffer may be in it alone.
		s.staged = max(e.Classes[0].Capacity, w.Largest)
	}
	for gamma := 1; gamma <= n; gamma++ {
		s.alone = max(s.alone, e.SourceRate(gamma))
		s.source = max(s.source, float64(gamma)*e.SourceRate(gamma))
	}
	for _, c := range e.Classes[1:] {
		s.rates = append(s.rates, c.Read.Best())
	}
	if n > 1 {
		s.peers = e.PeerBandwidth
	}
	return s
}

// add adds the next epoch.
func (s *span) add(d *Demand) {
	if s.epochs > 0 { // what was read before the span counts as staged
		for i, mb := range d.Shared {
			s.shared[i] += mb
		}
	}
	s.epochs++
	s.compute += d.Compute
	for i, mb := range d.Nodes {
		s.nodes[i] += mb
		s.total += mb
	}
	if s.start {
		s.fresh += d.New
	}
}

// least returns a lower bound of the time that the span takes.
func (s *span) least() float64 {
	heaviest, read := slices.Max(s.nodes), 0.0 // read: of a node, by reads of its own for each
	for i, mb := range s.nodes {
		read = max(read, mb-s.shared[i])
	}
	return max(s.compute, s.fresh/s.source, s.staging(heaviest), s.oneNode(heaviest, read),
		s.allNodes())
}

// staging returns how long the threads of a node that belong to the job take to preprocess and
// write mb MB. They do nothing else: a read occupies no thread.
func (s *span) staging(mb float64) float64 {
	jobs, threads := float64(max(1, s.job.Jobs)), float64(s.env.Classes[0].Threads)
	return (mb - s.staged) * s.env.Write(1) * jobs / threads
}

// cached returns how many epochs' reads may be served by what caches held before: all but those of
// the job's first.
func (s *span) cached() float64 {
	if s.start {
		return float64(s.epochs - 1)
	}
	return float64(s.epochs)
}

// oneNode returns how long a node takes to get mb MB: from the source, from other nodes, and from
// its own classes, which in an epoch serve at most what they hold. What one read serves several
// times takes the capacity of classes, but not of their rates: that leaves at least read MB.
func (s *span) oneNode(mb, read float64) float64 {
	rate := s.alone + s.peers
	return max((mb-s.staged-s.cached()*s.env.LocalCapacity())/rate,
		s.parallel(read-s.staged, rate, 1, s.cached()))
}

// allNodes returns how long the nodes together take to get every sample once, from the source and
// from all classes. If several nodes read each sample in an epoch, what a node does not hold itself
// comes from the source again or through the network.
func (s *span) allNodes() float64 {
	n, shared := float64(len(s.nodes)), 0.0
	for _, mb := range s.shared {
		shared += mb
	}
	readers := float64(max(1, s.job.Readers))
	mb, held := s.total/readers-n*s.staged, n*s.cached()*s.env.LocalCapacity()
	t := max((mb-held)/s.source, s.parallel(mb-shared/readers, s.source, n, s.cached()))
	if s.job.Readers > 1 {
		t = max(t, (s.total-held-n*s.staged)/(s.source+n*s.peers))
	}
	return t
}

// parallel returns how long mb MB take that come from a tier that gives rate MB/s and from the
// classes of n nodes, each of which serves at most its capacity `serves` times.
func (s *span) parallel(mb, rate, n, serves float64) float64 {
	rates, most := make([]float64, len(s.rates)), make([]float64, len(s.rates))
	for j, r := range s.rates {
		rates[j], most[j] = n*r, n*serves*s.env.Classes[j+1].Capacity
	}
	return parallel(mb, rate, rates, most)
}

// parallel returns the least t in which mb MB come from a tier that gives rate MB/s and from
// others, of which each gives rates[j] MB/s and serves at most most[j] MB:
//
//	rate t + sum over j of min(most_j, rates_j t) >= mb
//
// The left side is concave, so that Newton's method, started at 0, approaches t from below, and has
// it after one step per tier and one more.
func parallel(mb, rate float64, rates, most []float64) float64 {
	t := 0.0
	for range len(rates) + 1 {
		left, slope := mb-rate*t, rate
		for j, r := range rates {
			if r*t < most[j] {
				left -= r * t
				slope += r
			} else {
				left -= most[j]
			}
		}
		if left <= 0 {
			break
		}
		t += left / slope
	}
	return t
}
