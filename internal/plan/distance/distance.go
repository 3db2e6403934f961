// Package distance computes how much of the dataset an order reads per epoch, and how far it is
// from a full shuffle.
//
// Pure: no I/O, no goroutines. A Measure belongs to one goroutine.
package distance

import (
	"context"
	"math"
	"math/bits"

	"github.com/hdmlp/hdmlp/internal/plan/access"
)

// Measure counts the reads of the first epochs.
//
// In a full shuffle, where and when a sample is read is independent of where and when it is read in
// the next epoch. For each sample and pair of consecutive epochs, two conditions are counted:
// whether the same node reads the sample again, and whether it comes in the same sixteenth of the
// epoch again. These are four outcomes, whose probabilities under a full shuffle are known. The
// distance is the total variation distance between the counts and these probabilities; a sample
// that is not read is a fifth outcome. It is divided by the distance of an order that never
// changes, so that 0 is a full shuffle and 1 a fixed order. There are only four outcomes because a
// table of all nodes and sixteenths would have more cells than samples, and noise would appear as a
// distance. Both conditions are needed: shards change the sixteenth and never the node, and a fixed
// partition of each batch changes the node and never the sixteenth.
//
// Only the first epochs are counted, and of many samples an evenly spaced subset.
type Measure struct {
	epochs int // number of epochs counted
	f      int
	steps  int
	mask   int32 // a sample is counted if its number has none of these bits
	shift  int
	seen   [][]uint64 // per epoch, a bit per sample
	// per epoch and counted sample: node and sixteenth, plus one; 0: not read
	slots [][]uint32
	same  float64     // probability that a full shuffle gives a sample to the same node again
	part  [16]float64 // share of the epoch in each sixteenth
	whole bool        // every node reads every sample: only node 0 is counted
	full  bool        // the job's own order: every sample that is not dropped is read
	share float64     // of the dataset that the job's own order reads in an epoch
}

const (
	measuredEpochs  = 4
	measuredSamples = 1 << 16
)

// New returns a measure of the orders of the stream on nodes, of which a full batch and the last
// batch of an epoch have so many samples each, in so many epochs.
func New(stream *access.Stream, full, last []int, epochs int) *Measure {
	o := stream.Order()
	return newMeasure(stream, full, last, epochs, o == nil || o.Deal != nil)
}

// Others is New for orders that do not read what the stream would.
func Others(stream *access.Stream, full, last []int, epochs int) *Measure {
	return newMeasure(stream, full, last, epochs, false)
}

func newMeasure(stream *access.Stream, full, last []int, epochs int, own bool) *Measure {
	f := stream.Spec().Samples
	s := &Measure{
		epochs: min(epochs, measuredEpochs), f: f, steps: stream.Steps(), full: own,
		whole: stream.Spec().Scheme == access.Whole,
		share: float64(stream.Delivered()) / float64(f),
	}
	if over := (f - 1) / measuredSamples; over > 0 {
		s.shift = bits.Len(uint(over))
		s.mask = 1<<s.shift - 1
	}
	for range s.epochs {
		s.slots = append(s.slots, make([]uint32, f>>s.shift+1))
		if !s.full {
			s.seen = append(s.seen, make([]uint64, f/64+1))
		}
	}
	total := 0.0
	batch, rest := 0.0, 0.0
	for i := range full {
		n := float64(full[i]*(s.steps-1) + last[i])
		total += n
		s.same += n * n
		batch += float64(full[i])
		rest += float64(last[i])
	}
	s.same /= total * total
	if s.whole {
		s.same = 1
	}
	for step := range s.steps {
		n := batch
		if step == s.steps-1 {
			n = rest
		}
		s.part[16*step/s.steps] += n / total
	}
	return s
}

// Of measures an order: nodeOf has the node of each rank. The process must not give the epochs.
// Both are 0 if ctx is done, which is looked at once per epoch.
func Of(ctx context.Context, stream *access.Stream, nodeOf []int32, nodes int) (
	seen, distance float64,
) {
	full, last := make([]int, nodes), make([]int, nodes)
	first := stream.Epoch(0)
	for r, n := range nodeOf {
		full[n] += len(first.Batch(nil, r, 0))
		last[n] += len(first.Batch(nil, r, stream.Steps()-1))
	}
	m := New(stream, full, last, measuredEpochs)
	var ids []int32
	epoch := first
	for e := range m.epochs {
		if ctx.Err() != nil {
			return 0, 0
		}
		epoch = stream.EpochInto(epoch, e)
		for step := range stream.Steps() {
			for r, n := range nodeOf {
				ids = epoch.Batch(ids[:0], r, step)
				m.Add(e, step, int(n), ids)
			}
		}
	}
	return m.Result()
}

// Epochs returns how many epochs are counted, the first ones.
func (s *Measure) Epochs() int { return s.epochs }

// Add counts a batch of a node.
func (s *Measure) Add(epoch, step, node int, ids []int32) {
	if s.whole {
		if node > 0 {
			return
		}
	}
	if !s.full {
		seen := s.seen[epoch]
		for _, k := range ids {
			seen[k>>6] |= 1 << (k & 63)
		}
	}
	slots, value := s.slots[epoch], uint32(node<<4|16*step/s.steps)+1
	mask, shift := s.mask, s.shift&31
	for _, k := range ids {
		if k&mask == 0 {
			slots[k>>shift] = value
		}
	}
}

// Result returns the mean share of the dataset that is read in an epoch, and the distance from a
// full shuffle, which is 0 for a single epoch.
func (s *Measure) Result() (seen, distance float64) {
	seen = min(s.share, 1) // padding repeats samples
	if !s.full {
		seen = 0
		for _, words := range s.seen {
			for _, w := range words {
				seen += float64(bits.OnesCount64(w))
			}
		}
		seen /= float64(s.epochs) * float64(s.f)
	}
	if s.epochs < 2 {
		return seen, 0
	}
	var counted [2][2]float64 // [same node][same sixteenth]
	var both, missed, all float64
	for e := 1; e < s.epochs; e++ {
		before, now := s.slots[e-1], s.slots[e]
		for i := range (s.f-1)>>s.shift + 1 {
			all++
			was, is := before[i], now[i]
			if was == 0 || is == 0 {
				missed++
				continue
			}
			both++
			var node, place int
			if (was-1)>>4 == (is-1)>>4 {
				node = 1
			}
			if (was-1)&15 == (is-1)&15 {
				place = 1
			}
			counted[node][place]++
		}
	}
	samePlace := 0.0
	for _, p := range s.part {
		samePlace += p * p
	}
	expected := func(node, place int) float64 {
		return (1 - s.same + float64(node)*(2*s.same-1)) * (1 - samePlace +
			float64(place)*(2*samePlace-1))
	}
	// A full shuffle would drop as many samples as the job's own order.
	unseen := max(0, missed/all-(1-s.share*s.share))
	sum := unseen
	for node := range counted {
		for place := range counted[node] {
			p := 0.0
			if both > 0 {
				p = counted[node][place] / both * (1 - unseen)
			}
			sum += math.Abs(p - expected(node, place))
		}
	}
	// An order that never changes always has the outcome same node, same sixteenth.
	if fixed := 1 - expected(1, 1); fixed > 0 {
		return seen, min(1, sum/2/fixed)
	}
	return seen, 0
}
