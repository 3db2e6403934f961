package judge

import (
	"fmt"
	"slices"

	"github.com/hdmlp/hdmlp/internal/lab/clustersim/script"
	"github.com/hdmlp/hdmlp/internal/plan/access"
)

// Order returns the samples of an epoch before they are distributed over ranks.
type Order func(epoch int) []int

// Orders returns the order of a script's epochs. recorded is that of shuffles without a definition
// outside of HDMLP, as one rank without faults got it.
func Orders(s *script.Script, recorded Order) Order {
	of := func(positions []int) []int {
		if chosen := s.Chosen(); chosen != nil {
			for i, at := range positions {
				positions[i] = chosen[at]
			}
		}
		return positions
	}
	n := s.Positions()
	if s.Mix > 0 && s.Shuffle == "none" {
		return inOrder(s)
	}
	switch s.Shuffle {
	case "none":
		return func(int) []int { return of(upTo(n)) }
	case "given":
		return s.Given
	case "torch":
		return func(epoch int) []int { return of(randperm(n, uint32(s.Seed)+uint32(epoch))) }
	}
	return recorded
}

// Shuffled returns what is wrong with the orders of epochs that were recorded: each has all samples
// once, and no two are equal.
func Shuffled(s *script.Script, recorded Order) (wrong []string) {
	if s.Mix > 0 {
		return mixed(s, recorded)
	}
	all := s.Chosen()
	if all == nil {
		all = upTo(s.Samples)
	}
	slices.Sort(all)
	for e := range s.Epochs {
		order := recorded(e)
		if sorted := slices.Sorted(slices.Values(order)); !slices.Equal(sorted, all) {
			wrong = append(wrong, fmt.Sprintf("the order of epoch %d is not a shuffle: %v", e, order))
		}
		if e > 0 && len(all) > 20 && slices.Equal(order, recorded(e-1)) {
			wrong = append(wrong, fmt.Sprintf("epoch %d has the order of the one before", e))
		}
	}
	return wrong
}

func upTo(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// randperm is torch.randperm(n) after torch.manual_seed(seed): a Fisher-Yates shuffle that draws
// from MT19937 (Matsumoto and Nishimura 1998).
func randperm(n int, seed uint32) []int {
	const size, middle = 624, 397
	var state [size]uint32
	state[0] = seed
	for i := uint32(1); i < size; i++ {
		state[i] = 1812433253*(state[i-1]^state[i-1]>>30) + i
	}
	next := size
	draw := func() uint32 {
		if next == size {
			for i := range state {
				y := state[i]&(1<<31) | state[(i+1)%size]&(1<<31-1)
				state[i] = state[(i+middle)%size] ^ y>>1
				if y&1 == 1 {
					state[i] ^= 0x9908b0df
				}
			}
			next = 0
		}
		y := state[next]
		next++
		y ^= y >> 11
		y ^= y << 7 & 0x9d2c5680
		y ^= y << 15 & 0xefc60000
		return y ^ y>>18
	}
	list := upTo(n)
	for i := range n - 1 {
		j := i + int(draw()%uint32(n-i))
		list[i], list[j] = list[j], list[i]
	}
	return list
}

// epoch is what all ranks get in an epoch.
type epoch struct {
	script    *script.Script
	ranks     int
	positions []int // samples, padded or cut
	missing   map[int]bool
	chosen    map[int]bool // of the subset, or the epoch of a mix; nil: all are
	dealt     [][][]int    // by step and rank, in a policy's order; nil: by the script's scheme
}

// newEpoch distributes an epoch's order over ranks.
func newEpoch(s *script.Script, ranks int, order []int) *epoch {
	e := &epoch{script: s, ranks: ranks, missing: map[int]bool{}}
	switch n := len(order); s.Tail {
	case "drop":
		e.positions = order[:n/ranks*ranks]
	case "pad":
		e.positions = append(e.positions, order...)
		for i := 0; len(e.positions)%ranks != 0; i++ {
			e.positions = append(e.positions, order[i%n])
		}
	default:
		e.positions = order
	}
	chosen := s.Chosen()
	if s.Mix > 0 {
		chosen = order
	}
	for _, id := range chosen {
		if e.chosen == nil {
			e.chosen = map[int]bool{}
		}
		e.chosen[id] = true
	}
	for _, id := range slices.Concat(s.Missing, s.Undecodable) {
		e.missing[id] = true
	}
	return e
}

// reorder has ranks read in the order of a policy. It has as many samples in each of their batches,
// and, if it keeps global batches, the same ones in these.
func (c *court) reorder(e *epoch, stream *access.Stream, at Event) {
	of, draws := stream.Epoch(at.Epoch), stream.Order().Draw != nil
	if draws {
		e.chosen = map[int]bool{}
	}
	for step := range e.steps() {
		var due, dealt []int
		batches := make([][]int, e.ranks)
		for rank := range batches {
			for _, id := range of.Batch(nil, rank, step) {
				batches[rank] = append(batches[rank], int(id))
				if draws {
					e.chosen[int(id)] = true
				}
			}
			dealt = append(dealt, batches[rank]...)
			want := e.scheme(rank, step)
			if due = append(due, want...); len(batches[rank]) != len(want) {
				c.wrong(at, "the order has %d samples for rank %d at step %d instead of %d",
					len(batches[rank]), rank, step, len(want))
			}
		}
		e.dealt = append(e.dealt, batches)
		slices.Sort(due)
		slices.Sort(dealt)
		if !draws && !slices.Equal(due, dealt) {
			c.wrong(at, "the order has other samples in batch %d, %v, than %v", step, dealt, due)
		}
	}
}

// steps returns the number of batches.
func (e *epoch) steps() int {
	full := len(e.positions) / e.script.Batch
	if len(e.positions)%e.script.Batch != 0 && !e.script.DropLast {
		full++
	}
	return full
}

// share returns the samples of a rank's batch before any are left out.
func (e *epoch) share(rank, step int) (ids []int) {
	if e.dealt != nil {
		return e.dealt[step][rank]
	}
	return e.scheme(rank, step)
}

// scheme returns what share does in the order that the script asks for.
func (e *epoch) scheme(rank, step int) (ids []int) {
	from := step * e.script.Batch
	all := e.positions[from:min(from+e.script.Batch, len(e.positions))]
	switch e.script.Scheme {
	case "whole":
		return all
	case "uniform":
		each := (len(all) + e.ranks - 1) / e.ranks
		return all[min(rank*each, len(all)):min((rank+1)*each, len(all))]
	}
	for i := rank; i < len(all); i += e.ranks {
		ids = append(ids, all[i])
	}
	return ids
}

// batch returns what a rank gets. readable is false if it gets an error instead.
func (e *epoch) batch(rank, step int) (ids []int, readable bool) {
	for _, id := range e.share(rank, step) {
		switch {
		case !e.missing[id]:
			ids = append(ids, id)
		case e.script.OnError == "raise":
			return nil, false
		case e.script.OnError == "substitute":
			ids = append(ids, e.substitute(id))
		}
	}
	return ids, true
}

// substitute returns the next sample of the epoch, by ID, that can be read.
func (e *epoch) substitute(id int) int {
	for i := 1; ; i++ {
		next := (id + i) % e.script.Samples
		if !e.missing[next] && (e.chosen == nil || e.chosen[next]) || i > e.script.Samples {
			return next
		}
	}
}

// fails returns the first batch, from a step on, that some rank cannot get; the number of steps if
// there is none.
func (e *epoch) fails(from int) int {
	for step := from; step < e.steps(); step++ {
		for rank := range e.ranks {
			if _, ok := e.batch(rank, step); !ok {
				return step
			}
		}
	}
	return e.steps()
}
