package simulated

import (
	"iter"
	"math/rand/v2"
)

// Original is a policy that the simulator of the thesis also has.
type Original interface {
	// Original returns the rules of the policy in that simulator.
	Original() Rules
}

// Rules defines a policy in the simulator of the thesis (docs/SIMULATOR.md, The two profiles).
// That simulator places samples by different rules, in MB and in its own order, so its plans differ
// from those of package plan; profile thesis reproduces them exactly.
type Rules struct {
	Staged  bool // every sample is in the staging buffer from the start
	Staging bool // there is a staging prefetcher
	Remote  bool // it reads copies from other nodes
	Source  bool // it reads from the source
	Class   int  // the storage class that the policy requires; 0: none
	// LogStarts is true if the caches are filled during training, and P_i has the starts of the
	// reads.
	LogStarts bool
	// Drop means that a node drops its copy of a sample when it requests the sample for the last
	// time.
	Drop bool
	// Loads yields what is read into the caches, in order; nil if nothing is.
	Loads func(m *Machine) iter.Seq[Load]
	// Redraw returns the sample that node i reads instead of each of its own once the caches are
	// filled; nil if it reads its own. own has, per node, the range of samples that it has loaded
	// from the source.
	Redraw func(rng *rand.Rand, own []Range, i int) int32
	// Refuses returns why the policy cannot run on the machine, or ""; nil if it runs on any.
	Refuses func(m *Machine) string
}

// Machine is the input of a policy of the thesis. Sizes are in MB.
type Machine struct {
	Sizes    []float64 // of the samples
	Dataset  float64   // of all samples
	Capacity []float64 // of the storage classes, the staging buffer first
	Reads    [][]int32 // per node, what it reads in all epochs
	PerEpoch []int     // per node, the number of these in an epoch
}

// Range is the samples [From, To).
type Range struct{ From, To int }

// Share returns node i's share of the samples.
func (m *Machine) Share(i int) Range {
	each := len(m.Sizes) / len(m.Reads)
	return Range{i * each, (i + 1) * each}
}

// Load is what one loader of a node reads into a class, in order.
type Load struct {
	Node, Class int
	Samples     []int32
	// Before means before training starts; otherwise it is during training.
	Before bool
	// Remote means from the classes of other nodes; otherwise it is from the source.
	Remote bool
	// Later, if not 0, is the number of the node's request, from 1, at which the Load begins. It then
	// continues with the loader of the class.
	Later int
}

// Space is the free capacity of a class, in MB. It sums the sizes as the thesis does: whether the
// last sample fits may depend on the order of the additions.
type Space struct{ Used, Capacity float64 }

// Fits reports whether s MB fit.
func (r *Space) Fits(s float64) bool { return r.Used+s <= r.Capacity }

// Fill returns the samples from the start of the range that fit, and adds their sizes to Used.
func (r *Space) Fill(sizes []float64, of Range) []int32 {
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

// Draw returns a random sample of a range, but never its last (3.15), unless it is the only one.
func (r Range) Draw(rng *rand.Rand) int32 {
	return int32(r.From + rng.IntN(max(1, r.To-1-r.From)))
}
