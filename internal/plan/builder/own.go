package builder

import (
	"maps"
	"slices"
)

// FillOwn fills the nodes' remaining capacity with the samples that they read most often
// themselves, at least `least` times, and do not hold. It sorts no node's samples: a first pass
// sums the bytes per node, frequency and first epoch; from these the second pass derives a sample's
// offset in the node's sorted list, and so its class. The third pass fills the remaining gaps.
// Samples that fit on no node are skipped.
func (b *Builder) FillOwn(r *Reads, least uint32) {
	if b.open.most() < b.least {
		return
	}
	room, most := slices.Clone(b.open.rest), b.open.most()
	holders := newHolders(b)
	offset := make([]levels, len(b.in.Nodes))
	level := func(count uint32, n *reader) int { // higher is read more often or earlier
		return int(count)*r.epochs + r.epochs - 1 - int(n.first)
	}
	var fits func(k int32) bool // nil: any
	if most < b.most {
		fits = func(k int32) bool { return b.in.Size(int(k)) <= most }
	}
	pairs := 0
	r.each(fits, func(k int32, row *row) {
		size := b.in.Size(int(k))
		holders.look(k)
		for i := range row.by {
			n := &row.by[i]
			if count := row.count[n.node]; count >= least && size <= room[n.node] &&
				!holders.has(n.node) {
				*offset[n.node].at(level(count, n)) += size
				pairs++
			}
		}
	})
	b.expect(pairs)
	ends := make([][]int64, len(b.in.Nodes)) // where each class of a node ends in its sorted list
	for n := range offset {
		offset[n].accumulate()
		var end int64
		for _, room := range b.room[n] {
			end += room
			ends[n] = append(ends[n], end)
		}
	}
	first := func(n *reader) int32 {
		if r.whole {
			return unknown
		}
		return n.first
	}
	r.each(fits, func(k int32, row *row) {
		size := b.in.Size(int(k))
		holders.look(k)
		for i := range row.by {
			n := &row.by[i]
			if count := row.count[n.node]; count >= least && size <= room[n.node] &&
				!holders.has(n.node) {
				at := offset[n.node].at(level(count, n))
				*at += size
				for j, end := range ends[n.node] {
					if *at <= end {
						b.put(int(n.node), j, k, size, first(n))
						break
					}
				}
			}
		}
	})
	// Place samples that straddled the end of a class or of the node, and smaller ones in the gaps.
	fits = func(k int32) bool { return b.in.Size(int(k)) <= b.open.most() }
	r.each(fits, func(k int32, row *row) {
		size := b.in.Size(int(k))
		holders.look(k)
		for i := range row.by {
			if n := &row.by[i]; row.count[n.node] >= least && size <= b.open.room(int(n.node)) &&
				!holders.has(n.node) {
				b.put(int(n.node), 0, k, size, first(n))
			}
		}
	})
}

// FillUnread fills the remaining capacity with samples that the nodes never read, by ID: "until no
// more samples are left or no more space is left". Samples outside the stream's subset are
// excluded.
func (b *Builder) FillUnread() {
	holders := newHolders(b)
	for k := 0; k < len(b.head) && b.open.most() >= b.least; k++ {
		size := b.in.Size(k)
		if size > b.open.most() || !b.in.Stream.Has(k) {
			continue
		}
		holders.look(int32(k))
		for n, room := range b.open.rest {
			if size <= room && !holders.has(int32(n)) {
				b.put(n, 0, int32(k), size, never)
			}
		}
	}
}

// holders looks up which nodes hold a sample, in one pass over the sample's list.
type holders struct {
	b    *Builder
	k    int32
	last []int32 // per node, the last sample looked up that it holds, plus 1
}

func newHolders(b *Builder) *holders { return &holders{b: b, last: make([]int32, len(b.in.Nodes))} }

// look looks up the nodes that hold sample k now.
func (h *holders) look(k int32) {
	h.k = k
	for c := h.b.head[k]; c >= 0; c = h.b.copies[c].next {
		h.last[h.b.copies[c].node] = k + 1
	}
}

// has reports whether the node held the sample when it was looked up.
func (h *holders) has(node int32) bool { return h.last[node] == h.k+1 }

// OwnFastest makes a node that holds a sample in the fastest class its owner; nodes that tie take
// turns.
func (b *Builder) OwnFastest() {
	for k := range b.owner {
		best, ties := uint8(noClass), 0
		for c := b.head[k]; c >= 0; c = b.copies[c].next {
			switch class := b.copies[c].class; {
			case class < best:
				best, ties = class, 1
			case class == best:
				ties++
			}
		}
		if ties == 0 {
			continue
		}
		turn := k % ties
		for c := b.head[k]; c >= 0; c = b.copies[c].next {
			if b.copies[c].class == best {
				if turn == 0 {
					b.owner[k] = int32(b.copies[c].node)
				}
				turn--
			}
		}
	}
}

// denseLevels is up to which level sums are in a slice: 8 MB. Levels grow with the square of the
// epochs, of which jobs without an end in sight have millions.
const denseLevels = 1 << 20

// levels are sums of bytes by level.
type levels struct {
	dense []int64
	above map[int]*int64 // of levels from denseLevels on
}

// at returns the sum of a level.
func (s *levels) at(level int) *int64 {
	if level >= denseLevels {
		sum := s.above[level]
		if sum == nil {
			if s.above == nil {
				s.above = map[int]*int64{}
			}
			sum = new(int64)
			s.above[level] = sum
		}
		return sum
	}
	if grow := level + 1 - len(s.dense); grow > 0 {
		s.dense = append(s.dense, make([]int64, grow)...)
	}
	return &s.dense[level]
}

// accumulate sets each sum to that of all higher levels.
func (s *levels) accumulate() {
	var sum int64
	for _, level := range slices.Backward(slices.Sorted(maps.Keys(s.above))) {
		at := s.above[level]
		*at, sum = sum, sum+*at
	}
	for level := len(s.dense) - 1; level >= 0; level-- {
		s.dense[level], sum = sum, sum+s.dense[level]
	}
}
