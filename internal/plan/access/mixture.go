package access

import (
	"fmt"
	"math"
	"sort"
	"sync"
)

// Mixture is how epochs take samples from several datasets. The samples of dataset d follow those
// of dataset d-1 in the IDs of the stream.
//
// Each dataset is gone through in passes, each of which has every sample once. They go on over the
// ends of epochs: where an epoch leaves a pass, the next one continues it. Epochs take from the
// datasets by their weights: of each dataset the exact share of the epoch, rounded up or down, and
// over many epochs neither more often. So which sample comes when depends on nothing but this, the
// seed and the epoch.
type Mixture struct {
	Sizes []int `json:"sizes"` // samples of each dataset, at least 1; Samples in all
	// Weights are the datasets' weights, by epoch; the last ones hold for all later epochs. Those of
	// an epoch add up to at least 1, and at most 2^32-1.
	Weights [][]uint64 `json:"weights"`
	Entries int        `json:"entries"` // samples of an epoch
	// Single is set if each global batch has samples of one dataset only. The weights are then
	// shares of the batches, and Entries must be a multiple of GlobalBatch, which must be one of
	// WorldSize.
	Single bool `json:"single"`
}

const (
	maxDatasets = 1 << 16
	maxWeight   = math.MaxUint32 // of the datasets of an epoch together
	// MaxMixedEpoch is the largest number of an epoch of a Mixture.
	MaxMixedEpoch = 1<<24 - 1
	// countedEvery is for how many epochs it is remembered what those before it took.
	countedEvery = 256
)

// mixing is a Mixture that is checked, with what drawing its epochs takes. It is safe for
// concurrent use.
type mixing struct {
	Mixture
	seed    uint64
	shuffle bool
	unit    int      // samples that are taken together: 1, or a global batch
	units   int      // of an epoch
	starts  []int    // the first sample of each dataset
	deal    domain   // of the units of an epoch
	passes  []domain // of each dataset's samples

	mu    sync.Mutex // guards taken
	taken [][]uint64 // units of each dataset in all epochs before number i*countedEvery
}

func (spec Spec) validateMixture() error {
	m := spec.Mixture
	if m == nil {
		return nil
	}
	sum := 0
	for d, n := range m.Sizes {
		if n < 1 || n > spec.Samples-sum {
			return fmt.Errorf("access: dataset %d of Mixture has %d samples, after %d of %d; "+
				"allowed: at least 1, and Samples in all", d, n, sum, spec.Samples)
		}
		sum += n
	}
	if sum != spec.Samples || len(m.Sizes) > maxDatasets {
		return fmt.Errorf("access: Mixture has %d datasets with %d samples; Samples is %d, and at "+
			"most %d datasets are allowed", len(m.Sizes), sum, spec.Samples, maxDatasets)
	}
	if err := m.validateWeights(); err != nil {
		return err
	}
	switch {
	case m.Entries < 1 || m.Entries > maxSamples:
		return fmt.Errorf("access: Entries of Mixture is %d; allowed: 1 to %d", m.Entries, maxSamples)
	case spec.Subset != nil:
		return fmt.Errorf("access: Subset and Mixture are both given; at most one is allowed")
	case spec.Shuffle == Torch:
		return fmt.Errorf("access: Shuffle is %q, and a Mixture has no such order; allowed: %s, %s",
			Torch, Feistel, Sequential)
	case m.Single && (m.Entries%spec.GlobalBatch != 0 || spec.GlobalBatch%spec.WorldSize != 0):
		return fmt.Errorf("access: Entries of Mixture is %d, with batches of one dataset each: it "+
			"must be a multiple of GlobalBatch, %d, and that one of WorldSize, %d", m.Entries,
			spec.GlobalBatch, spec.WorldSize)
	}
	return nil
}

func (m *Mixture) validateWeights() error {
	if len(m.Weights) < 1 {
		return fmt.Errorf("access: Mixture has no weights; there must be some for one epoch")
	}
	for e, row := range m.Weights {
		if len(row) != len(m.Sizes) {
			return fmt.Errorf("access: epoch %d of Mixture has %d weights; there are %d datasets", e,
				len(row), len(m.Sizes))
		}
		sum := uint64(0)
		for _, w := range row {
			sum += min(w, maxWeight+1)
		}
		if sum < 1 || sum > maxWeight {
			return fmt.Errorf("access: the weights of epoch %d of Mixture add up to %d; allowed: 1 "+
				"to %d", e, sum, uint64(maxWeight))
		}
	}
	return nil
}

func sumOf(list []uint64) (sum uint64) {
	for _, v := range list {
		sum += v
	}
	return sum
}

// newMixing returns the mixing of a valid spec; nil: it has none.
func newMixing(spec Spec) *mixing {
	if spec.Mixture == nil {
		return nil
	}
	x := &mixing{
		Mixture: *spec.Mixture, seed: spec.Seed, shuffle: spec.Shuffle == Feistel, unit: 1,
		taken: [][]uint64{make([]uint64, len(spec.Mixture.Sizes))},
	}
	if x.Single {
		x.unit = spec.GlobalBatch
	}
	x.units = x.Entries / x.unit
	x.deal = newDomain(x.units)
	start := 0
	for _, n := range x.Sizes {
		x.starts = append(x.starts, start)
		start += n
		x.passes = append(x.passes, newDomain(n))
	}
	return x
}

// counts returns how many units an epoch has of each dataset.
//
// The borders between the shares are rounded down after something less than 1 was added to all of
// them (systematic sampling): each share is rounded up or down, and all add up. What is added are
// the multiples of the golden ratio, less whole numbers (Weyl's sequence): spread evenly over all
// epochs, and over every second or every n-th of them, so that each dataset is rounded up as often
// as its share requires, also where weights alternate.
func (x *mixing) counts(epoch int) []uint64 {
	row := x.Weights[min(epoch, len(x.Weights)-1)]
	all, units := sumOf(row), uint64(x.units)
	add := all * uint64(uint32(epoch)*(golden>>32)) >> 32
	counts := make([]uint64, len(row))
	border, before := uint64(0), uint64(0)
	for d, weight := range row {
		border += weight
		end := (border*units + add) / all
		counts[d] = end - before
		before = end
	}
	return counts
}

// before returns how many units all epochs before one took of each dataset.
func (x *mixing) before(epoch int) []uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	next := func(taken []uint64, epoch int) []uint64 {
		for d, n := range x.counts(epoch) {
			taken[d] += n
		}
		return taken
	}
	for len(x.taken) <= epoch/countedEvery {
		last := len(x.taken) - 1
		taken := append([]uint64(nil), x.taken[last]...)
		for e := range countedEvery {
			taken = next(taken, last*countedEvery+e)
		}
		x.taken = append(x.taken, taken)
	}
	taken := append([]uint64(nil), x.taken[epoch/countedEvery]...)
	for e := epoch / countedEvery * countedEvery; e < epoch; e++ {
		taken = next(taken, e)
	}
	return taken
}

// draw returns the samples of an epoch, in the memory of dst if that is large enough.
func (x *mixing) draw(dst []int32, epoch int) []int32 {
	if cap(dst) < x.Entries {
		dst = make([]int32, 0, x.Entries)
	}
	dst = dst[:0]
	walks := make([]walk, len(x.Sizes))
	for d, n := range x.before(epoch) {
		walks[d] = x.walk(d, n*uint64(x.unit))
	}
	next := x.evenly(x.counts(epoch))
	if x.shuffle {
		next = x.shuffled(x.counts(epoch), epoch)
	}
	for p := range x.units {
		w := &walks[next(p)]
		for range x.unit {
			dst = append(dst, w.next())
		}
	}
	return dst
}

// shuffled returns the dataset of each unit of an epoch that has counts of them.
func (x *mixing) shuffled(counts []uint64, epoch int) func(unit int) int {
	ends, end := make([]uint64, len(counts)), uint64(0)
	for d, n := range counts {
		end += n
		ends[d] = end
	}
	key := x.deal.key(x.seed, uint64(epoch))
	return func(unit int) int {
		at := uint64(key.forward(uint32(unit)))
		return sort.Search(len(ends), func(d int) bool { return at < ends[d] })
	}
}

// evenly is shuffled for units that are not: dataset d's unit number j of n comes at the time
// (2j+1)/2n of the epoch, and of two at the same time that of the first dataset.
func (x *mixing) evenly(counts []uint64) func(unit int) int {
	times, taken := make([]float64, len(counts)), make([]uint64, len(counts))
	due := func(d int) float64 {
		if taken[d] == counts[d] {
			return math.Inf(1)
		}
		return float64(2*taken[d]+1) / float64(2*counts[d])
	}
	for d := range counts {
		times[d] = due(d)
	}
	return func(int) int {
		first := 0
		for d, at := range times {
			if at < times[first] {
				first = d
			}
		}
		taken[first]++
		times[first] = due(first)
		return first
	}
}

// walk goes through the passes of a dataset.
type walk struct {
	x       *mixing
	dataset int
	pass    uint64
	at      uint32 // the place in the pass
	keys    keyed  // of the pass
}

func (x *mixing) walk(dataset int, taken uint64) walk {
	size := uint64(x.Sizes[dataset])
	w := walk{x: x, dataset: dataset, pass: taken / size, at: uint32(taken % size)}
	w.keys = w.key()
	return w
}

// key returns the keys of the pass. Each dataset has a seed of its own, which is not the epochs'.
func (w *walk) key() keyed {
	seed := mix64(w.x.seed + uint64(w.dataset+1)*golden)
	return w.x.passes[w.dataset].key(seed, w.pass)
}

// next returns the next sample.
func (w *walk) next() int32 {
	if int(w.at) == w.x.Sizes[w.dataset] {
		w.pass++
		w.at, w.keys = 0, w.key()
	}
	k := w.at
	if w.x.shuffle {
		k = w.keys.forward(k)
	}
	w.at++
	return int32(w.x.starts[w.dataset] + int(k))
}

// has reports whether some epoch may take from the dataset that has the sample.
func (x *mixing) has(sample int) bool {
	d := sort.SearchInts(x.starts, sample+1) - 1
	for _, row := range x.Weights {
		if row[d] > 0 {
			return true
		}
	}
	return false
}

// Varies reports whether epochs differ in the samples that they have, and not only in their order:
// they are given, or of a Mixture.
func (s *Stream) Varies() bool { return s.spec.Shuffle == Given || s.mixing != nil }

// Mixed returns how many samples of each dataset of a Mixture an epoch has; nil: there is none.
func (s *Stream) Mixed(epoch int) []uint64 {
	if s.mixing == nil {
		return nil
	}
	counts := s.mixing.counts(epoch)
	for d := range counts {
		counts[d] *= uint64(s.mixing.unit)
	}
	return counts
}
