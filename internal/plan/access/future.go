package access

import "slices"

// Mix hashes one read of a sample, so that sums of hashes show whether the delivered samples are
// those of the stream. It is the output of SplitMix64 for the state epoch<<32|sample.
func Mix(epoch, sample int) uint64 {
	return mix64((uint64(epoch)<<32 | uint64(sample)) + golden)
}

// Audit returns the sum of Mix over everything that the epoch delivers from a step >= 0 on, modulo
// 2^64. The ranks' own sums must add up to it. It does not depend on how ranks share the batches.
// Under Whole every rank delivers every sample, so each counts WorldSize times.
func (e *Epoch) Audit(from int) uint64 {
	var sum uint64
	for p := e.s.base(from); p < e.s.delivered; p++ {
		sum += Mix(e.number, int(e.sample(p)))
	}
	if e.s.spec.Scheme == Whole {
		sum *= uint64(e.s.spec.WorldSize)
	}
	return sum
}

// Frequencies returns r_k, how often the ranks together read each sample in epochs [from, to)
// (thesis 3.2.1). In a given stream all these epochs must be known. For the ranks of one of N nodes
// r_k is distributed as Binomial(to-from, 1/N).
func (s *Stream) Frequencies(ranks []int, from, to int) []uint32 {
	freq := make([]uint32, s.spec.Samples)
	var batch []int32
	var e *Epoch
	for n := from; n < to; n++ {
		e = s.EpochInto(e, n)
		for step := range s.steps {
			for _, r := range ranks {
				batch = e.Batch(batch[:0], r, step)
				for _, k := range batch {
					freq[k]++
				}
			}
		}
	}
	return freq
}

// FirstAccess returns the samples that the ranks read in epochs [from, to), by their first access:
// the order in which a cache that serves these ranks should be filled (thesis 3.2.2, rule 1).
func (s *Stream) FirstAccess(ranks []int, from, to int) []int32 {
	if len(ranks) == 0 {
		return nil
	}
	seen := make([]bool, s.spec.Samples)
	var order []int32
	var e *Epoch
	for n := from; n < to && len(order) < len(seen); n++ {
		e = s.EpochInto(e, n)
		for _, k := range e.Reads(ranks...) {
			if !seen[k] {
				seen[k] = true
				order = append(order, k)
			}
		}
	}
	return order
}

// lookedEpochs is in how many epochs ReadAfter looks for samples. Few random orders leave out the
// same ones.
const lookedEpochs = 16

// ReadAfter returns, in the same order, those of the samples that an epoch after this one reads, or
// may read: the stream has no end, its orders are given, or too many epochs would have to be drawn.
// The epoch itself must have left all of them out. It uses the memory of samples for its result.
func (s *Stream) ReadAfter(epoch int, samples []int32) []int32 {
	if len(samples) == 0 || s.spec.Epochs == 0 || s.spec.Shuffle == Given {
		return samples
	}
	missing := make(map[int32]bool, len(samples))
	for _, k := range samples {
		missing[k] = true
	}
	var e *Epoch
	// Without a shuffle, all epochs leave out the same, unless they are of a Mixture.
	same := s.spec.Shuffle == Sequential && s.mixing == nil
	for n := epoch + 1; n < s.spec.Epochs && !same && len(missing) > 0; n++ {
		if n > epoch+lookedEpochs {
			return samples
		}
		e = s.EpochInto(e, n)
		for p := range s.delivered {
			delete(missing, e.sample(p))
		}
	}
	return slices.DeleteFunc(samples, func(k int32) bool { return missing[k] })
}

// NextAccess returns when the ranks read the sample next, from the start of epoch
// from on and before epoch to; false if they do not. Under Torch it draws each epoch that it
// searches.
func (s *Stream) NextAccess(ranks []int, sample, from, to int) (epoch int, at Read, ok bool) {
	wanted := make(map[int]bool, len(ranks))
	for _, r := range ranks {
		wanted[r] = true
	}
	for n := from; n < to; n++ {
		for _, p := range s.Epoch(n).Find(sample) {
			if wanted[p.Rank] {
				return n, p, true
			}
		}
	}
	return 0, Read{}, false
}
