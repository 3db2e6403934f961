package simulated

import (
	"iter"
	"math/rand/v2"
)

// Original is a policy that the simulator of the thesis has as well.
type Original interface {
	// Original says what that makes of it.
	Original() Rules
}

// Rules is what makes a policy in the simulator of the thesis (simulator-semantics section 1,
// policies). It places samples by rules of its own, in MB and by its own order, so that its plans
// are not those of placement; profile thesis runs them to the letter.
type Rules struct {
	Staged  bool // every sample lies in the staging buffer from the start
	Staging bool // there is a staging prefetcher
	Remote  bool // it reads copies of other nodes
	Source  bool // it reads from the source
	Class   int  // the one storage class that the policy needs; 0: none
	// LogStarts says that the caches are filled during training, and P_i has the starts of the
	// reads.
	LogStarts bool
	// Loads yields what is read into the caches, in order; nil: nothing is.
	Loads func(m *Machine) iter.Seq[Load]
	// Redraw returns the sample that node i reads in the place of each of its own, once the caches
	// are filled; nil: its own. own has, per node, the range of samples that it has loaded from the
	// source.
	Redraw func(rng *rand.Rand, own []Range, i int) int32
	// Refuses says why the policy cannot run on the machine, or ""; nil: it runs on every one.
	Refuses func(m *Machine) string
}

// Machine is what a policy of the thesis looks at. Sizes are in MB.
type Machine struct {
	Sizes    []float64 // of the samples
	Dataset  float64   // of all of them
	Capacity []float64 // of the storage classes, the staging buffer first
	Reads    [][]int32 // per node, what it reads in all epochs
	PerEpoch []int     // per node, how many of these in an epoch
}

// Range is the samples [From, To).
type Range struct{ From, To int }

// Share is node i's share of the samples.
func (m *Machine) Share(i int) Range {
	each := len(m.Sizes) / len(m.Reads)
	return Range{i * each, (i + 1) * each}
}

// Load is what one loader of a node reads into a class, sample after sample.
type Load struct {
	Node, Class int
	Samples     []int32
	// Before: before training starts. Otherwise while it goes on.
	Before bool
	// Remote: from other nodes, whose classes are there. Otherwise from the source.
	Remote bool
	// Later: 0, or that the Load waits for the node's so-manieth request for a batch after the
	// first, and goes on with the loader of the class that came before.
	Later int
}

// Room is what is left of a class, in MB. It adds up what is taken as the thesis does: whether the
// last sample fits may depend on the order of the additions.
type Room struct{ Used, Capacity float64 }

// Fits reports whether s MB fit.
func (r *Room) Fits(s float64) bool { return r.Used+s <= r.Capacity }

// Fill returns the samples of a range, from its begin on, for as long as they fit, and takes their
// room.
func (r *Room) Fill(sizes []float64, of Range) []int32 {
	var samples []int32
	for k := of.From; k < of.To && r.Fits(sizes[k]); k++ {
		r.Used += sizes[k]
		samples = append(samples, int32(k))
	}
	return samples
}

// All returns the samples of a range.
func (r Range) All() []int32 {
	samples := make([]int32, 0, r.To-r.From)
	for k := r.From; k < r.To; k++ {
		samples = append(samples, int32(k))
	}
	return samples
}

// Draw draws a sample of a range, but never its last one (3.15), unless it is the only one.
func (r Range) Draw(rng *rand.Rand) int32 {
	return int32(r.From + rng.IntN(max(1, r.To-1-r.From)))
}
