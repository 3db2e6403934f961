package access

import (
	"fmt"
	"sort"
	"strings"
)

// Limits of a Spec. They keep every product in this package within 64 bits.
const (
	maxSamples = 1<<31 - 1
	maxRanks   = 1 << 20
	maxBatch   = 1<<62 - 1 // a batch larger than an epoch is cut to the epoch
)

// Stream is the access stream of all ranks over all epochs. It is safe for concurrent use, and
// immutable except for Give and Forget. It takes O(1) memory besides given epochs and a subset.
type Stream struct {
	spec      Spec
	n         int // positions that are shuffled: F, or the length of the subset or of a given epoch
	batch     int // positions of a global batch: GlobalBatch, or fewer if an epoch has fewer
	positions int // P: positions of an epoch after the tail has padded or dropped
	delivered int // positions that some batch delivers: P, less a dropped last batch
	full      int // batches of that many positions
	steps     int // full, plus one for a short last batch that is delivered
	feistel   domain
	listed    [][]int32 // permutations of the first epochs that were given, or kept
	again     bool      // they start again after the last
	subset    *list     // nil: all samples
	mixing    *mixing   // nil: no Mixture
	// starts is, in a given stream of one rank, where each batch begins and the last one ends;
	// nil: all batches have the same size.
	starts []int32
	given  *givenEpochs // nil: epochs are drawn
	// order, if not nil, is the order in which the epochs of original were put.
	order    *Order
	original *Stream
}

// New checks spec, fills in the defaults of Shuffle (Torch), Scheme (Strided)
// and Tail (Pad), and returns the stream that spec defines. An error names
// the field, its value and what is allowed. A stream that would deliver nothing is refused with a
// *NothingError, where torch would silently iterate over nothing.
func New(spec Spec) (*Stream, error) {
	if spec.Shuffle == "" {
		spec.Shuffle = Torch
	}
	if spec.Scheme == "" {
		spec.Scheme = Strided
	}
	if spec.Tail == "" {
		spec.Tail = Pad
	}
	if err := spec.validate(); err != nil {
		return nil, err
	}

	s, number := &Stream{spec: spec, n: spec.Samples}, "Samples"
	if spec.Subset != nil {
		number = subsetLength
		s.n, s.subset = len(spec.Subset), newList(spec.Subset, spec.Samples)
	}
	if spec.Mixture != nil {
		number = "Entries of Mixture"
		s.n, s.mixing = spec.Mixture.Entries, newMixing(spec)
	}
	f := s.n
	w := spec.WorldSize
	g := spec.GlobalBatch
	switch spec.Tail {
	case Pad:
		s.positions = (f + w - 1) / w * w
	case Drop:
		s.positions = f / w * w
		if s.positions == 0 {
			return nil, &NothingError{spec, 0, fmt.Sprintf("%s is %d, fewer than WorldSize, %d: "+
				"with Tail %q nothing would be delivered; at least %d samples, or Tail %q or %q",
				number, f, w, Drop, w, Pad, Keep)}
		}
	case Keep:
		s.positions = f
	}
	s.batch = min(g, s.positions)
	s.full = s.positions / g
	s.steps, s.delivered = s.full, s.full*g
	if s.delivered < s.positions && !spec.DropLast {
		s.steps, s.delivered = s.full+1, s.positions
	}
	if s.steps == 0 {
		return nil, &NothingError{spec, s.positions, fmt.Sprintf("GlobalBatch is %d, more than "+
			"the %d positions of an epoch: with DropLast nothing would be delivered; at most %d, "+
			"or no DropLast", g, s.positions, s.positions)}
	}
	if spec.Shuffle == Feistel {
		s.feistel = newDomain(f)
	}
	return s, nil
}

// NothingError reports a Spec whose stream would deliver nothing: fewer samples than ranks with
// Tail Drop, or fewer positions than a global batch with DropLast.
type NothingError struct {
	Spec      Spec
	Positions int // of an epoch; 0: there are fewer samples than ranks
	text      string
}

func (e *NothingError) Error() string { return "access: " + e.text }

// subsetLength is the subset's length in errors.
const subsetLength = "the number of samples in Subset"

func (spec Spec) validate() error {
	between := func(field string, v, lo, hi int) error {
		if v < lo || v > hi {
			return fmt.Errorf("access: %s is %d; allowed: %d to %d", field, v, lo, hi)
		}
		return nil
	}
	if err := between("Samples", spec.Samples, 1, maxSamples); err != nil {
		return err
	}
	if err := between("WorldSize", spec.WorldSize, 1, maxRanks); err != nil {
		return err
	}
	if err := between("GlobalBatch", spec.GlobalBatch, 1, maxBatch); err != nil {
		return err
	}
	if err := between("Epochs", spec.Epochs, 0, maxSamples); err != nil {
		return err
	}
	if spec.Subset != nil {
		if err := between(subsetLength, len(spec.Subset), 1, maxSamples); err != nil {
			return err
		}
		for p, k := range spec.Subset {
			if k < 0 || int(k) >= spec.Samples {
				return fmt.Errorf("access: Subset has sample %d at index %d; allowed: 0 to %d", k,
					p, spec.Samples-1)
			}
		}
	}
	if err := oneOf("Shuffle", spec.Shuffle, Torch, Feistel, Sequential); err != nil {
		return err
	}
	if err := oneOf("Scheme", spec.Scheme, Strided, Uniform, Whole, Imbalanced); err != nil {
		return err
	}
	if err := oneOf("Tail", spec.Tail, Pad, Drop, Keep); err != nil {
		return err
	}
	return spec.validateMixture()
}

func oneOf[T ~string](field string, v T, allowed ...T) error {
	words := make([]string, len(allowed))
	for i, a := range allowed {
		if v == a {
			return nil
		}
		words[i] = string(a)
	}
	return fmt.Errorf("access: %s is %q; allowed: %s", field, string(v), strings.Join(words, ", "))
}

// Spec returns the stream's Spec with its defaults filled in.
func (s *Stream) Spec() Spec { return s.spec }

// Steps returns T, the number of batches per epoch. It is the same on every rank, although a rank's
// share of a batch may be empty.
func (s *Stream) Steps() int { return s.steps }

// RankSamples returns how many samples the rank reads per epoch.
func (s *Stream) RankSamples(rank int) int {
	if s.starts != nil {
		return s.share(s.delivered, rank).n // there is one rank
	}
	n := s.full * s.share(s.batch, rank).n
	if s.steps > s.full {
		n += s.share(s.batchSize(s.full), rank).n
	}
	return n
}

// Offset returns how many samples the rank reads in an epoch before a step, which may be the number
// of steps. The process must not give the epochs.
func (s *Stream) Offset(rank, step int) int {
	if step == s.steps {
		return s.RankSamples(rank)
	}
	return step * s.share(s.batch, rank).n
}

// Empty reports whether a batch of the rank has no samples: the last one of each epoch, or each.
// The process must not give the epochs.
func (s *Stream) Empty(rank int) bool {
	return s.steps == 0 || s.Offset(rank, s.steps-1) >= s.RankSamples(rank)
}

// Empties reports whether some rank's batch would be Empty if the global batch had this size, and
// DropLast were not set.
func (s *Stream) Empties(globalBatch int) bool {
	spec := s.spec
	spec.GlobalBatch, spec.DropLast = globalBatch, false
	other, err := New(spec)
	if err != nil {
		return false // New returns the error to the caller with that spec
	}
	for rank := range spec.WorldSize {
		if other.Empty(rank) {
			return true
		}
	}
	return false
}

// Delivered returns the number of positions that all ranks together deliver per epoch. A position
// that every rank gets (Whole) counts once.
func (s *Stream) Delivered() int { return s.delivered }

// Deal returns how the global batch at the step is distributed: its positions, relative to the
// batch's first, in the order in which the ranks need them together (as in Reads), and the rank
// that reads each. Under Whole every rank reads every position, and ranks is nil. Steps of the same
// size (BatchSize) have the same result.
func (s *Stream) Deal(step int) (positions, ranks []int32) {
	m := s.checkStep(step)
	positions = make([]int32, 0, m)
	if s.spec.Scheme == Whole {
		for p := range m {
			positions = append(positions, int32(p))
		}
		return positions, nil
	}
	ranks = make([]int32, 0, m)
	shares := make([]share, s.spec.WorldSize)
	for r := range shares {
		shares[r] = s.share(m, r)
	}
	for j := 0; len(positions) < m; j++ {
		for r, sh := range shares {
			if j < sh.n {
				positions, ranks = append(positions, int32(sh.start+j*sh.stride)),
					append(ranks, int32(r))
			}
		}
	}
	return positions, ranks
}

// BatchSize returns the number of positions of the global batch at the step.
func (s *Stream) BatchSize(step int) int { return s.checkStep(step) }

// batchSize returns the positions of global batch `step`.
func (s *Stream) batchSize(step int) int {
	if s.starts != nil {
		return int(s.starts[step+1] - s.starts[step])
	}
	return min(s.batch, s.positions-step*s.batch)
}

// base returns the first position of global batch `step`, or, for the number of steps, the first
// position that no batch delivers.
func (s *Stream) base(step int) int {
	if s.starts != nil {
		return int(s.starts[step])
	}
	return step * s.batch
}

// stepOf returns the step that delivers a position.
func (s *Stream) stepOf(p int) int {
	if s.starts != nil {
		return sort.Search(s.steps-1, func(step int) bool { return p < int(s.starts[step+1]) })
	}
	return p / s.batch
}

// Repeats reports whether an epoch may read a sample more than once.
func (s *Stream) Repeats() bool {
	if s.order != nil {
		return s.order.Draw != nil || s.original.Repeats()
	}
	return s.given != nil || s.mixing != nil || s.delivered > s.n ||
		s.subset != nil && s.subset.repeats()
}

// share is what a rank gets of a global batch: n positions, the first
// at offset start into the batch, each stride after the one before.
type share struct{ start, stride, n int }

// share splits a global batch of m positions (thesis 4.1.3).
func (s *Stream) share(m, rank int) share {
	w := s.spec.WorldSize
	if rank < 0 || rank >= w {
		panic(fmt.Sprintf("access: rank %d of a world of %d", rank, w))
	}
	switch s.spec.Scheme {
	case Strided:
		return share{rank, w, max(0, (m-rank+w-1)/w)}
	case Uniform:
		c := (m + w - 1) / w
		return share{rank * c, 1, min(c, max(0, m-rank*c))}
	case Imbalanced:
		lo := s.boundary(m, rank)
		return share{lo, 1, s.boundary(m, rank+1) - lo}
	default: // Whole
		return share{0, 1, m}
	}
}

// boundary is where rank's slice of a batch of m positions begins under Imbalanced.
//
// The thesis states the sizes 2*ceil(|B|/N) for one half of the ranks and ceil(|B|/N)/2 for the
// other. These add up to 1.25*|B|, so no partition of the batch can have them. Their proportion of
// four to one is kept: the batch is cut at cumulative weights, 4 for each of the first N/2 ranks
// and 1 for each of the others.
func (s *Stream) boundary(m, rank int) int {
	return m * s.weight(rank) / s.weight(s.spec.WorldSize)
}

// weight is the sum of the weights of the first n ranks under Imbalanced.
func (s *Stream) weight(n int) int {
	return n + 3*min(n, s.spec.WorldSize/2)
}

// reader is the inverse of share: the rank that gets the position at offset
// off of a global batch of m, and the position's index in the rank's share. Whole has
// no single reader.
func (s *Stream) reader(m, off int) (rank, index int) {
	w := s.spec.WorldSize
	switch s.spec.Scheme {
	case Strided:
		return off % w, off / w
	case Uniform:
		c := (m + w - 1) / w
		return off / c, off % c
	default: // Imbalanced
		// The boundaries ascend; find the last rank that begins at or before off.
		lo, hi := 0, w
		for hi-lo > 1 {
			mid := int(uint(lo+hi) / 2)
			if s.boundary(m, mid) <= off {
				lo = mid
			} else {
				hi = mid
			}
		}
		return lo, off - s.boundary(m, lo)
	}
}
