package access

import "slices"

// Order is another order of the epochs of a stream (Stream.Reordered). Exactly one of its functions
// is set. Both are pure, and safe for concurrent use: equal epochs have equal orders, whatever was
// asked for before.
type Order struct {
	// Name describes the order with all that it depends on besides the stream. Streams with equal
	// Specs and equal names read the same.
	Name string
	// Deal moves samples within each global batch: the sample at position p is the one that the
	// epoch had at position Deal(epoch)[p]. All global batches keep their samples, so that training
	// which sums gradients over the ranks stays the same.
	Deal func(of *Epoch) []int32
	// Draw returns the samples of an epoch by position, in the place of its own.
	Draw func(of *Epoch) []int32
}

// Reordered returns the stream with its epochs in another order: with batches of the same sizes, on
// the same ranks. Epochs take 12 bytes per position more. The process must not give the epochs.
func (s *Stream) Reordered(o Order) *Stream {
	if s.given != nil || (o.Deal == nil) == (o.Draw == nil) {
		panic("access: a stream that is given, or an order without exactly one function")
	}
	r := *s
	r.order, r.original = &o, s
	r.n, r.positions = s.delivered, s.delivered
	r.listed = nil
	return &r
}

// Order returns the order in which the stream's epochs were put, and nil if that is their own.
func (s *Stream) Order() *Order { return s.order }

// Original returns the stream before it was Reordered: itself, if it was not.
func (s *Stream) Original() *Stream {
	if s.original != nil {
		return s.original
	}
	return s
}

// reordered is epoch for a stream that is reordered.
func (s *Stream) reordered(old *Epoch, e int) *Epoch {
	var before *Epoch
	if old != nil {
		before = old.before
	}
	ep := &Epoch{s: s, number: e, before: s.original.EpochInto(before, e)}
	if s.order.Draw != nil {
		ep.perm = s.order.Draw(ep.before)
	} else {
		ep.moved = s.order.Deal(ep.before)
		ep.perm = make([]int32, len(ep.moved))
		for p, at := range ep.moved {
			ep.perm[p] = ep.before.sample(int(at))
		}
	}
	if len(ep.perm) != s.delivered {
		panic("access: an order of another length than the epoch")
	}
	ep.list = newList(ep.perm, s.spec.Samples)
	return ep
}

// places returns the positions of the global batch at a step, by node, in the order in which a
// node's ranks need them together. nodeOf has the node of each rank. Under Whole there is no such
// order: every rank reads every position.
func (s *Stream) places(step int, nodeOf []int32, nodes int) [][]int32 {
	out := make([][]int32, nodes)
	positions, ranks := s.Deal(step)
	for i, p := range positions {
		n := nodeOf[ranks[i]]
		out[n] = append(out[n], p)
	}
	return out
}

// Places are the positions of global batches, by node.
type Places struct {
	stream     *Stream
	full, last [][]int32
}

// Places returns which positions of its global batches each node reads. nodeOf has the node of each
// rank; a rank is on one node. The scheme must not be Whole.
func (s *Stream) Places(nodeOf []int32, nodes int) Places {
	return Places{s, s.places(0, nodeOf, nodes), s.places(s.steps-1, nodeOf, nodes)}
}

// At returns the positions of the batch at a step, relative to the batch's first, by node, each in
// the order in which the node needs them. They must not be modified.
func (p *Places) At(step int) [][]int32 {
	if step < p.stream.steps-1 {
		return p.full
	}
	return p.last
}

// Before returns how many samples the node reads in an epoch before a step, which may be the number
// of steps.
func (p *Places) Before(node, step int) int {
	if step == p.stream.steps {
		return (step-1)*len(p.full[node]) + len(p.last[node])
	}
	return step * len(p.full[node])
}

// Steps returns the number of batches of an epoch.
func (p *Places) Steps() int { return p.stream.steps }

// Base returns the position of the first sample of the batch at a step.
func (p *Places) Base(step int) int { return p.stream.base(step) }

// occurrences is Occurrence for an epoch in which samples were moved.
func (e *Epoch) occurrences(rank, step int) []int32 {
	if e.moved == nil {
		if !e.list.repeats() {
			return nil
		}
		return e.occurrencesOf(rank, step, func(p int) int32 { return e.list.occurrence(p) })
	}
	l := e.before.repeating()
	if l == nil {
		return nil
	}
	return e.occurrencesOf(rank, step, func(p int) int32 {
		return e.before.occurrence(l, int(e.moved[p]))
	})
}

// occurrencesOf returns the occurrence of each sample of the rank's batch at the step, by position.
func (e *Epoch) occurrencesOf(rank, step int, of func(p int) int32) []int32 {
	sh := e.s.share(e.s.checkStep(step), rank)
	out := make([]int32, sh.n)
	for i := range out {
		out[i] = of(e.s.base(step) + sh.start + i*sh.stride)
	}
	return out
}

// Samples returns the samples of the epoch, by position, without those that no batch delivers.
func (e *Epoch) Samples() []int32 {
	if e.perm != nil && len(e.perm) >= e.s.delivered {
		return slices.Clone(e.perm[:e.s.delivered])
	}
	ids := make([]int32, e.s.delivered)
	for p := range ids {
		ids[p] = e.sample(p)
	}
	return ids
}
