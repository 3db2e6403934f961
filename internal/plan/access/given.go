package access

import (
	"fmt"
	"maps"
	"slices"
	"sync"
)

// NewGiven returns a stream of one rank whose epochs are given to it, by Give, as they become
// known. batches has the size of each batch of an epoch. An epoch may be longer or shorter than the
// dataset: it may repeat samples and leave others out. epochs is E; 0 means no end. GlobalBatch of
// the stream's Spec is the size of the largest batch.
func NewGiven(samples int, batches []int32, epochs int) (*Stream, error) {
	spec := Spec{
		Samples:     samples,
		Epochs:      epochs,
		WorldSize:   1,
		GlobalBatch: 1,
		Shuffle:     Torch,
		Scheme:      Strided,
		Tail:        Keep,
	}
	if err := spec.validate(); err != nil {
		return nil, err
	}
	if len(batches) == 0 {
		return nil, fmt.Errorf("access: an epoch without batches; there must be at least one")
	}
	starts, n := make([]int32, 0, len(batches)+1), 0
	for step, m := range batches {
		if m < 1 || n+int(m) > maxSamples {
			return nil, fmt.Errorf("access: batch %d has %d samples after %d; allowed: at least "+
				"1, and %d in all batches of an epoch", step, m, n, maxSamples)
		}
		starts = append(starts, int32(n))
		n += int(m)
	}
	spec.Shuffle, spec.GlobalBatch = Given, int(slices.Max(batches))
	return &Stream{
		spec: spec, n: n, batch: spec.GlobalBatch, positions: n, delivered: n, full: len(batches),
		steps:  len(batches),
		starts: append(starts, int32(n)), given: &givenEpochs{epochs: make(map[int]*list)},
	}, nil
}

// NewGivenShared is NewGiven for several ranks, each of which takes entries samples per epoch in
// batches of batch samples; its last batch may be short. Give takes the samples of all ranks,
// interleaved: the one at index i*ranks + r is the i-th of rank r. The epoch is thus distributed as
// under Strided, with global batches of ranks*batch.
func NewGivenShared(samples, ranks, batch, entries, epochs int) (*Stream, error) {
	spec := Spec{
		Samples:     samples,
		Epochs:      epochs,
		WorldSize:   ranks,
		GlobalBatch: 1,
		Shuffle:     Torch,
		Scheme:      Strided,
		Tail:        Keep,
	}
	if err := spec.validate(); err != nil {
		return nil, err
	}
	if batch < 1 || batch > maxBatch/ranks || entries < 1 || entries > maxSamples/ranks {
		return nil, fmt.Errorf("access: %d ranks with %d samples of an epoch each, in batches of "+
			"%d; allowed: at least 1, and %d in all batches of an epoch",
			ranks, entries, batch, maxSamples)
	}
	spec.Shuffle, spec.GlobalBatch = Given, ranks*batch
	n := ranks * entries
	return &Stream{
		spec: spec, n: n, batch: min(spec.GlobalBatch, n), positions: n, delivered: n,
		full: entries / batch, steps: (entries + batch - 1) / batch,
		given: &givenEpochs{epochs: make(map[int]*list)},
	}, nil
}

// givenEpochs holds the known orders. An order never changes.
type givenEpochs struct {
	mu     sync.RWMutex
	epochs map[int]*list
}

// epoch returns an epoch's order, or nil if it is not known.
func (g *givenEpochs) epoch(e int) *list {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.epochs[e]
}

// Give adds an epoch to a given stream: its samples, in order, which the caller must not change
// afterwards. Giving an epoch again does nothing if the samples are the same, and otherwise fails
// with an error that names the first difference.
func (s *Stream) Give(epoch int, ids []int32) error {
	if s.given == nil {
		return fmt.Errorf("access: epoch %d is given to a stream that draws its epochs", epoch)
	}
	if epoch < 0 || s.spec.Epochs > 0 && epoch >= s.spec.Epochs {
		return fmt.Errorf("access: epoch %d is given; there are %d epochs (0: no end), "+
			"counted from 0", epoch, s.spec.Epochs)
	}
	if len(ids) != s.n {
		return fmt.Errorf("access: epoch %d is given with %d samples; its batches have %d", epoch,
			len(ids), s.n)
	}
	for i, k := range ids {
		if k < 0 || int(k) >= s.spec.Samples {
			return fmt.Errorf("access: epoch %d is given with sample %d at index %d; "+
				"allowed: 0 to %d", epoch, k, i, s.spec.Samples-1)
		}
	}
	s.given.mu.Lock()
	defer s.given.mu.Unlock()
	if known := s.given.epochs[epoch]; known != nil {
		for i, k := range known.ids {
			if ids[i] != k {
				return fmt.Errorf("access: epoch %d is given again with another order: sample %d "+
					"at index %d, which was %d", epoch, ids[i], i, k)
			}
		}
		return nil
	}
	s.given.epochs[epoch] = newList(ids, s.spec.Samples)
	return nil
}

// Given reports whether the epoch's order is known. It always is if the stream draws its epochs.
func (s *Stream) Given(epoch int) bool { return s.given == nil || s.given.epoch(epoch) != nil }

// GivenEpochs returns the known epochs of a given stream, in ascending order.
func (s *Stream) GivenEpochs() []int {
	if s.given == nil {
		return nil
	}
	s.given.mu.RLock()
	defer s.given.mu.RUnlock()
	return slices.Sorted(maps.Keys(s.given.epochs))
}

// Forget frees the epochs of a given stream before one. Epochs that Epoch has returned stay valid.
func (s *Stream) Forget(before int) {
	if s.given == nil {
		return
	}
	s.given.mu.Lock()
	defer s.given.mu.Unlock()
	maps.DeleteFunc(s.given.epochs, func(e int, _ *list) bool { return e < before })
}

// Fixed returns a snapshot of the stream with the epochs that are known now; later calls of Give
// and Forget do not change it.
func (s *Stream) Fixed() *Stream {
	if s.given == nil {
		return s
	}
	s.given.mu.RLock()
	defer s.given.mu.RUnlock()
	fixed := *s
	fixed.given = &givenEpochs{epochs: maps.Clone(s.given.epochs)}
	return &fixed
}

// list is an order in which samples may repeat or be missing. It is safe for concurrent use.
type list struct {
	ids     []int32
	samples int

	bits    sync.Once // guards members and again
	members []uint64  // a bit per sample that is in the list
	again   bool      // a sample is in the list more than once

	invert sync.Once // guards start and place
	start  []int32   // per sample, where its part of place begins; one more entry for the end
	place  []int32   // per sample, the indices at which it is in the list, in ascending order
}

func newList(ids []int32, samples int) *list { return &list{ids: ids, samples: samples} }

func (l *list) look() {
	l.bits.Do(func() {
		l.members = make([]uint64, l.samples/64+1)
		for _, k := range l.ids {
			l.again = l.again || l.members[k/64]>>(k%64)&1 != 0
			l.members[k/64] |= 1 << (k % 64)
		}
	})
}

// has reports whether the sample is in the list.
func (l *list) has(sample int) bool {
	l.look()
	return l.members[sample/64]>>(sample%64)&1 != 0
}

// repeats reports whether a sample is in the list more than once.
func (l *list) repeats() bool {
	l.look()
	return l.again
}

// appendPlaces appends the indices at which a sample is.
func (l *list) appendPlaces(dst []int, sample int) []int {
	for _, i := range l.places(sample) {
		dst = append(dst, int(i))
	}
	return dst
}

// occurrence returns how often the sample at an index is in the list before it.
func (l *list) occurrence(index int) int32 {
	before, _ := slices.BinarySearch(l.places(int(l.ids[index])), int32(index))
	return int32(before)
}

// places returns the indices at which a sample is, in ascending order.
func (l *list) places(sample int) []int32 {
	l.invert.Do(func() {
		l.start, l.place = make([]int32, l.samples+1), make([]int32, len(l.ids))
		for _, k := range l.ids {
			l.start[k]++
		}
		var sum int32
		for k, n := range l.start {
			sum += n
			l.start[k] = sum
		}
		// Fill backwards, so that start ends up at the beginning of each sample's part.
		for i := len(l.ids) - 1; i >= 0; i-- {
			k := l.ids[i]
			l.start[k]--
			l.place[l.start[k]] = int32(i)
		}
	})
	return l.place[l.start[sample]:l.start[sample+1]]
}
