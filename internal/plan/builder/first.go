package builder

import (
	"math"
	"slices"
)

// candidates is how many preferred nodes a sample has before it is placed on any node where it
// fits.
const candidates = 4

// FirstCopies places one copy of every sample that fits, greedily by benefit per byte. A sample
// that does not fit on its best node is queued again with its benefit on the next best.
//
// In addition to the table of reads this takes 32 bytes per sample, of which 4 are released before
// the copies are placed.
func (b *Builder) FirstCopies(r *Reads) {
	order, delivered := b.firstNeeded()
	r.load(0) // before there is more
	choice := make([]wanted, len(b.head))
	rank := b.rank(r, order, choice)
	b.Tidy()
	b.expect(len(rank) + len(rank)/32) // a few more will fit into gaps

	var again keyHeap
	for next := 0; next < len(rank) || len(again) > 0; {
		var key uint64
		if len(again) == 0 || next < len(rank) && rank[next] < again[0] {
			key = rank[next]
			next++
		} else {
			key = again.pop()
		}
		turn := uint32(key)
		k := order[turn]
		size := b.in.Size(int(k))
		n, at := b.choose(size, &choice[k])
		if n < 0 {
			continue
		}
		if had, has := choice[k][0].count, choice[k].at(at); has < had {
			benefit := descending(^uint32(key>>32)) - float32(float64(had-has)*max(0,
				b.peer-b.local))
			choice[k].drop(at)
			again.push(uint64(^ascending(benefit))<<32 | uint64(turn))
			continue
		}
		first := int32(0)
		if int(turn) >= delivered {
			first = unknown
		}
		b.put(n, 0, k, size, first)
		b.owner[k] = int32(n)
	}
	b.OwnKept()
}

// rank returns a key for every sample that no node holds, in the order in which first copies are
// placed: benefit, largest first, above the sample's index in order. It also fills choice with each
// sample's preferred nodes, and makes the best holder of a sample its owner.
func (b *Builder) rank(r *Reads, order []int32, choice []wanted) []uint64 {
	turn := slices.Repeat([]int32{-1}, len(b.head))
	for i, k := range order {
		turn[k] = int32(i)
	}
	rank := make([]uint64, len(order))
	r.eachAtOnce(func(k int32, row *row) {
		needed := turn[k] >= 0
		if b.head[k] >= 0 {
			b.owner[k] = b.bestHolder(k, row)
			for c := b.head[k]; c >= 0; c = b.copies[c].next {
				if c := &b.copies[c]; int32(c.node) == b.owner[k] && c.first != held {
					c.first = unknown // other nodes need it as well
				}
			}
			if needed {
				rank[turn[k]] = math.MaxUint64
			}
			return
		}
		switch {
		case !needed:
			return
		case b.keeper != nil && b.keeper[k] >= 0: // it would have to be sent to any other node
			keeper := b.keeper[k]
			choice[k] = wanted{{
				uint16(keeper),
				uint16(min(max(row.count[keeper], 1), math.MaxUint16)),
			}}
		case !r.whole: // otherwise all nodes are equally good
			choice[k] = mostReads(row)
		}
		benefit := b.benefitPerByte(b.in.Size(int(k)), row.total, int(choice[k][0].count))
		rank[turn[k]] = uint64(^ascending(benefit))<<32 | uint64(turn[k])
	})
	sortKeys(rank)
	placed, _ := slices.BinarySearch(rank, math.MaxUint64)
	return rank[:placed]
}

// ascending maps a float to bits that sort like it; descending reverses that order.
func ascending(f float32) uint32 {
	if bits := math.Float32bits(f); f < 0 {
		return ^bits
	} else {
		return bits | 1<<31
	}
}

func descending(bits uint32) float32 {
	if bits&(1<<31) != 0 {
		return math.Float32frombits(bits &^ (1 << 31))
	}
	return math.Float32frombits(^bits)
}

// keyHeap is a binary heap of keys, the smallest first.
type keyHeap []uint64

func (h *keyHeap) push(key uint64) {
	*h = append(*h, key)
	s := *h
	for i := len(s) - 1; i > 0 && s[i] < s[(i-1)/2]; i = (i - 1) / 2 {
		s[i], s[(i-1)/2] = s[(i-1)/2], s[i]
	}
}

func (h *keyHeap) pop() uint64 {
	s := *h
	key := s[0]
	s[0] = s[len(s)-1]
	s = s[:len(s)-1]
	*h = s
	for i := 0; ; {
		least := i
		for c := 2*i + 1; c <= 2*i+2; c++ {
			if c < len(s) && s[c] < s[least] {
				least = c
			}
		}
		if least == i {
			return key
		}
		s[i], s[least] = s[least], s[i]
		i = least
	}
}

// nodeReads is how often a node reads a sample.
type nodeReads struct{ node, count uint16 }

// wanted are the preferred nodes of a sample, most reads first, up to a count of 0.
type wanted [candidates]nodeReads

// at returns how often candidate i reads the sample, or 0 after the last.
func (w *wanted) at(i int) uint16 {
	if i >= len(w) {
		return 0
	}
	return w[i].count
}

// drop removes the first i candidates.
func (w *wanted) drop(i int) {
	var rest wanted
	copy(rest[:], w[min(i, len(w)):])
	*w = rest
}

// mostReads returns the nodes that read a sample most often, most first. Ties are in the order in
// which the nodes first read it, which is random, so that no node is favoured.
func mostReads(row *row) (top wanted) {
	for _, n := range row.by {
		c := nodeReads{uint16(n.node), uint16(min(row.count[n.node], math.MaxUint16))}
		if c.count <= top[candidates-1].count {
			continue
		}
		for i := range top {
			if c.count > top[i].count {
				c, top[i] = top[i], c
			}
		}
	}
	return top
}

// choose returns the node for the first copy of a sample, and the index of its candidate: among the
// candidates on which it fits, the one that reads it most often, the roomiest if they tie; if it
// fits on no candidate, another node and an index after the candidates; -1 if it fits nowhere.
func (b *Builder) choose(size int64, choice *wanted) (node, candidate int) {
	if b.open.most() < size {
		return -1, 0
	}
	best := -1
	at := candidates
	room := int64(0)
	count := uint16(0)
	for i, c := range choice {
		if c.count == 0 || best >= 0 && c.count < count {
			break
		}
		if has := b.open.room(int(c.node)); has >= size && has > room {
			best = int(c.node)
			room = has
			count = c.count
			at = min(at, i)
		}
	}
	if best < 0 {
		return b.open.node(), candidates
	}
	return best, at
}

// bestHolder returns the node, of those that hold k, that reads it most often.
func (b *Builder) bestHolder(k int32, row *row) int32 {
	best, most := int32(-1), uint32(0)
	for c := b.head[k]; c >= 0; c = b.copies[c].next {
		node := int32(b.copies[c].node)
		if count := row.count[node]; best < 0 || count > most || count == most && node < best {
			best, most = node, count
		}
	}
	return best
}

// firstNeeded returns every sample that the stream reads from the horizon's first epoch on, or may
// read, in the order in which the nodes together first need them. The first `delivered` samples are
// those that the first epoch delivers; the others come last.
func (b *Builder) firstNeeded() (order []int32, delivered int) {
	order = make([]int32, 0, len(b.head))
	seen := make([]bool, len(b.head))
	for ids := range b.steps(b.in.Stream.Epoch(b.in.From)) {
		for _, k := range ids {
			if !seen[k] {
				seen[k] = true
				order = append(order, k)
			}
		}
	}
	delivered = len(order)
	for k := range seen {
		if !seen[k] && b.in.Stream.Has(k) {
			order = append(order, int32(k))
		}
	}
	later := b.in.Stream.ReadAfter(b.in.From, order[delivered:])
	return append(order[:delivered], later...), delivered
}
