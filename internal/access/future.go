package access

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

// NextAccess returns when the ranks read the sample next, from the start of epoch
// from on and before epoch to; false if they do not. Under Torch it draws each epoch that it
// searches.
func (s *Stream) NextAccess(ranks []int, sample, from, to int) (epoch int, at Place, ok bool) {
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
	return 0, Place{}, false
}
