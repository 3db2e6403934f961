package access

import (
	"fmt"
	"iter"
	"slices"
	"sync"
)

// Epoch is one epoch of a stream: a permutation of its positions, or a given order, distributed to
// steps and ranks. It is safe for concurrent use. Under Torch and Given, and of a Mixture, it takes
// 4 bytes per position; once Find has been called, 4 more, and another 4 per sample if samples may
// repeat.
// Otherwise it takes O(1) memory.
type Epoch struct {
	s       *Stream
	number  int
	perm    []int32   // Torch, Given: the samples, by position
	keyed   keyed     // Feistel: the permutation's keys
	invert  sync.Once // guards inverse
	inverse []int32   // Torch: the permutation's inverse, once Find needs it
	list    *list     // perm, where samples may repeat or be missing; else nil
	shared  bool      // perm belongs to the stream
	// Of a stream that is reordered: the epoch before that, and the position that the sample at each
	// position had there; nil: the samples are others.
	before *Epoch
	moved  []int32
}

// Read is one read of a sample in an epoch.
type Read struct {
	Rank  int // the rank that reads it
	Index int // At(Rank, Index) is the sample
	Step  int // the batch of the epoch
}

// Epoch returns epoch e >= 0, which may be beyond the Spec's Epochs: the seed defines it all the
// same. Under Torch it draws the permutation, which takes some ten nanoseconds per sample, so keep
// the Epoch instead of calling again. Under Given it returns nil for an epoch that was not given or
// was forgotten.
func (s *Stream) Epoch(e int) *Epoch { return s.epoch(e, nil) }

// EpochInto is Epoch, but reuses the memory of an epoch that is no longer used, if it is not nil.
func (s *Stream) EpochInto(old *Epoch, e int) *Epoch {
	if s.order != nil {
		return s.reordered(old, e)
	}
	if old == nil || old.shared {
		return s.epoch(e, nil)
	}
	return s.epoch(e, old.perm)
}

// epoch is Epoch, with the permutation in buf if that is large enough.
func (s *Stream) epoch(e int, buf []int32) *Epoch {
	if e < 0 {
		panic(fmt.Sprintf("access: epoch %d", e))
	}
	if s.order != nil {
		return s.reordered(nil, e)
	}
	ep := &Epoch{s: s, number: e}
	if s.given != nil {
		if ep.list = s.given.epoch(e); ep.list == nil {
			return nil
		}
		ep.perm, ep.shared = ep.list.ids, true
		return ep
	}
	if e < len(s.listed) || s.again {
		ep.perm, ep.shared = s.listed[e%len(s.listed)], true
		return ep
	}
	if s.mixing != nil {
		ep.perm = s.mixing.draw(buf, e)
		ep.list = newList(ep.perm, s.spec.Samples)
		return ep
	}
	switch s.spec.Shuffle {
	case Torch:
		if cap(buf) < s.n {
			buf = make([]int32, s.n)
		}
		ep.perm = buf[:s.n]
		randperm(ep.perm, uint32(s.spec.Seed+uint64(e)))
		if s.subset != nil {
			for i, p := range ep.perm {
				ep.perm[i] = s.subset.ids[p]
			}
			ep.list = newList(ep.perm, s.spec.Samples)
		}
	case Feistel:
		ep.keyed = s.feistel.key(s.spec.Seed, uint64(e))
	}
	return ep
}

// Number returns the epoch's number, from 0.
func (e *Epoch) Number() int { return e.number }

// sample returns the sample at position p of the epoch. Positions after the last shuffled one
// repeat the permutation from its start, as often as needed.
func (e *Epoch) sample(p int) int32 {
	if p >= e.s.n {
		p %= e.s.n
	}
	switch {
	case e.perm != nil:
		return e.perm[p]
	case e.s.spec.Shuffle == Feistel:
		p = int(e.keyed.forward(uint32(p)))
	}
	if e.s.subset != nil {
		return e.s.subset.ids[p]
	}
	return int32(p)
}

// appendPositions is the inverse of sample: it appends the positions of a sample in ascending
// order, except those that repeat the permutation.
func (e *Epoch) appendPositions(dst []int, sample int) []int {
	switch {
	case e.list != nil:
		return e.list.appendPlaces(dst, sample)
	case e.s.spec.Shuffle == Torch:
		e.invert.Do(func() {
			e.inverse = make([]int32, len(e.perm))
			for p, k := range e.perm {
				e.inverse[k] = int32(p)
			}
		})
		return append(dst, int(e.inverse[sample]))
	}
	begin := len(dst)
	if e.s.subset != nil {
		dst = e.s.subset.appendPlaces(dst, sample)
	} else {
		dst = append(dst, sample)
	}
	if e.s.spec.Shuffle == Feistel {
		for i, p := range dst[begin:] {
			dst[begin+i] = int(e.keyed.backward(uint32(p)))
		}
		slices.Sort(dst[begin:])
	}
	return dst
}

// Occurrence numbers the occurrences of a sample within the epoch: for each sample of the rank's
// batch at the step it returns 0 for the sample's first occurrence, 1 for the next, and so on. It
// counts samples that a subset or a given order has more than once, not those that padding repeats.
// nil means that all are 0.
func (e *Epoch) Occurrence(rank, step int) []int32 {
	if e.before != nil {
		return e.occurrences(rank, step)
	}
	l := e.repeating()
	if l == nil {
		return nil
	}
	return e.occurrencesOf(rank, step, func(p int) int32 { return e.occurrence(l, p) })
}

// repeating returns the list by which samples of the epoch repeat; nil: none does.
func (e *Epoch) repeating() *list {
	l := e.list
	if l == nil {
		l = e.s.subset
	}
	if l == nil || !l.repeats() {
		return nil
	}
	return l
}

// occurrence returns how often the sample at a position is in l, the list by which samples repeat,
// before it.
func (e *Epoch) occurrence(l *list, p int) int32 {
	p %= e.s.n
	if e.list == nil && e.s.spec.Shuffle == Feistel {
		p = int(e.keyed.forward(uint32(p)))
	}
	return l.occurrence(p)
}

// Has reports whether the epoch has the sample: whether the subset, or the order that is given or
// drawn by a policy, contains it. An order that only deals samples has those of the stream.
func (e *Epoch) Has(sample int) bool {
	if e.s.Varies() || e.s.order != nil && e.s.order.Draw != nil {
		return e.list.has(sample)
	}
	return e.s.Has(sample)
}

// Has reports whether an epoch may read the sample. It is false for samples outside the Subset,
// and of datasets of a Mixture that never have a weight.
func (s *Stream) Has(sample int) bool {
	if s.mixing != nil {
		return s.mixing.has(sample)
	}
	return s.subset == nil || s.subset.has(sample)
}

// appendSamples appends the samples of a share of the batch that starts at position base.
func (e *Epoch) appendSamples(dst []int32, base int, sh share) []int32 {
	if sh.n == 0 {
		return dst
	}
	p := base + sh.start
	if e.perm != nil && p+(sh.n-1)*sh.stride < len(e.perm) {
		if sh.stride == 1 {
			return append(dst, e.perm[p:p+sh.n]...)
		}
		for range sh.n {
			dst = append(dst, e.perm[p])
			p += sh.stride
		}
		return dst
	}
	for range sh.n {
		dst = append(dst, e.sample(p))
		p += sh.stride
	}
	return dst
}

// Batch appends to dst the samples of the rank's batch at the step, in the order
// in which the rank reads them: B^{h,i} of thesis 3.1.3. It allocates only if dst lacks capacity.
// The batch is empty if the scheme leaves the rank nothing.
func (e *Epoch) Batch(dst []int32, rank, step int) []int32 {
	m := e.s.checkStep(step)
	return e.appendSamples(dst, e.s.base(step), e.s.share(m, rank))
}

// Global appends to dst the samples of the whole global batch, B^h, in position order.
func (e *Epoch) Global(dst []int32, step int) []int32 {
	m := e.s.checkStep(step)
	return e.appendSamples(dst, e.s.base(step), share{0, 1, m})
}

func (s *Stream) checkStep(step int) int {
	if step < 0 || step >= s.steps {
		panic(fmt.Sprintf("access: step %d of an epoch of %d", step, s.steps))
	}
	return s.batchSize(step)
}

// At returns the i-th sample that the rank reads in the epoch, i in
// [0, RankSamples(rank)): R_i of thesis equation 3.1, restricted to the epoch. O(1).
func (e *Epoch) At(rank, i int) int {
	g := e.s.batch
	step, j := e.s.full, i
	sh := e.s.share(g, rank)
	if e.s.starts != nil { // a single rank reads everything
		step, sh = 0, e.s.share(e.s.delivered, rank)
	} else if i >= 0 && i < e.s.full*sh.n {
		step, j = i/sh.n, i%sh.n
	} else {
		j = i - e.s.full*sh.n
		if step < e.s.steps {
			sh = e.s.share(e.s.batchSize(step), rank)
		} else {
			sh.n = 0
		}
	}
	if j < 0 || j >= sh.n {
		panic(fmt.Sprintf("access: sample %d of rank %d, which reads %d per epoch", i, rank,
			e.s.RankSamples(rank)))
	}
	return int(e.sample(step*g + sh.start + j*sh.stride))
}

// Find returns every read of the sample in the epoch, by position and, under Whole, by rank:
// usually one, none if the sample is dropped, and several if it pads or the order repeats it. It
// takes O(1) per read; under Torch and Given the first call inverts the order.
func (e *Epoch) Find(sample int) []Read {
	s := e.s
	if sample < 0 || sample >= s.spec.Samples {
		panic(fmt.Sprintf("access: sample %d of %d", sample, s.spec.Samples))
	}
	var reads []Read
	positions := e.appendPositions(nil, sample)
	for round := 0; round < s.delivered && len(positions) > 0; round += s.n {
		for _, p := range positions {
			if p += round; p < s.delivered {
				reads = s.appendReads(reads, p)
			}
		}
	}
	return reads
}

// appendReads appends the reads of a position.
func (s *Stream) appendReads(reads []Read, p int) []Read {
	step := s.stepOf(p)
	if s.starts != nil {
		return append(reads, Read{0, p, step})
	}
	if s.spec.Scheme == Whole {
		for rank := range s.spec.WorldSize {
			reads = append(reads, Read{rank, p, step})
		}
		return reads
	}
	rank, j := s.reader(s.batchSize(step), p-s.base(step))
	return append(reads, Read{rank, step*s.share(s.batch, rank).n + j, step})
}

// Reads yields what the ranks read in the epoch, as (rank, sample), in the order in which they need
// it together: step by step, each rank's first sample of the batch, then each rank's second, and so
// on. Without arguments it covers every rank.
func (e *Epoch) Reads(ranks ...int) iter.Seq2[int, int32] {
	if len(ranks) == 0 {
		ranks = make([]int, e.s.spec.WorldSize)
		for r := range ranks {
			ranks[r] = r
		}
	}
	return func(yield func(int, int32) bool) {
		shares := make([]share, len(ranks))
		size, most := -1, 0
		for step := range e.s.steps {
			if m := e.s.batchSize(step); m != size {
				size, most = m, 0
				for i, r := range ranks {
					shares[i] = e.s.share(m, r)
					most = max(most, shares[i].n)
				}
			}
			base := e.s.base(step)
			for j := range most {
				for i, sh := range shares {
					if j < sh.n && !yield(ranks[i], e.sample(base+sh.start+j*sh.stride)) {
						return
					}
				}
			}
		}
	}
}
