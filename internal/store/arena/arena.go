// Package arena allocates the bytes of a storage class's store: where in its segment or file the
// next sample goes. It handles numbers only, never bytes.
//
// Samples are laid out one after the other, without padding or headers, so a space of n bytes takes
// samples whose sizes add up to exactly n. Bytes that are released (a read that failed, a corrupt
// sample, many dropped ones) are allocated again, next fit.
//
// A Space is not safe for concurrent use: its owner's lock guards it.
package arena

import (
	"cmp"
	"fmt"
	"iter"
	"slices"

	"github.com/hdmlp/hdmlp/internal/lib/invariants"
)

// Space allocates the bytes of one store.
//
// INVARIANT: 0 <= used <= capacity, used + bytes in free == end,
// free is sorted by offset, its extents neither touch nor reach end.
type Space struct {
	capacity int64 // bytes that may be in use
	dense    bool  // whether offsets, too, must stay below capacity
	end      int64 // end of the allocated part
	used     int64
	free     []Extent
	next     int // index in free, where the search for room begins; it may be too high
}

// probes is how many holes are tried for a sample: after many drops there may be millions, all of
// them too small.
const probes = 1024

// Extent is a run of bytes.
type Extent struct{ Offset, Length int64 }

// New returns an empty space of capacity bytes. A dense space allocates no byte at or beyond
// capacity, so a large sample may not fit after failures have left holes; a space that is not dense
// (a file) goes beyond capacity as long as the bytes in use fit. If half of the samples is replaced
// again and again, by ones of other sizes, it ends at about 1.2 times the capacity.
func New(capacity int64, dense bool) Space {
	return Space{capacity: capacity, dense: dense}
}

// Restore returns the space in which exactly the extents in use are allocated; they must be sorted
// by offset and must not overlap.
func Restore(capacity int64, dense bool, inUse iter.Seq[Extent]) Space {
	s := New(capacity, dense)
	for e := range inUse {
		if e.Length == 0 {
			continue
		}
		if e.Offset > s.end {
			s.free = append(s.free, Extent{s.end, e.Offset - s.end})
		}
		s.end = e.Offset + e.Length
		s.used += e.Length
	}
	return s
}

// Reserve allocates n bytes. If they do not fit, ok is false, and nothing has changed.
func (s *Space) Reserve(n int64) (offset int64, ok bool) {
	if n < 0 || n > s.capacity-s.used {
		return 0, false
	}
	if n == 0 {
		return 0, true
	}
	for k := range min(len(s.free), probes) {
		i := (s.next + k) % len(s.free)
		hole := &s.free[i]
		if hole.Length < n {
			continue
		}
		offset, s.next = hole.Offset, i
		hole.Offset += n
		hole.Length -= n
		if hole.Length == 0 {
			s.free = slices.Delete(s.free, i, i+1)
		}
		s.used += n
		return offset, true
	}
	if s.dense && n > s.capacity-s.end {
		return 0, false
	}
	offset = s.end
	s.end += n
	s.used += n
	return offset, true
}

// Release frees what Reserve has allocated.
func (s *Space) Release(offset, n int64) {
	if n == 0 {
		return
	}
	if offset < 0 || n < 0 || offset+n > s.end || n > s.used {
		panic(fmt.Sprintf("arena: release of [%d, %d) which is not allocated", offset, offset+n))
	}
	if invariants.Enabled {
		for _, e := range s.free {
			invariants.Check(offset+n <= e.Offset || e.end() <= offset,
				"arena: release of [%d, %d), of which %v is free", offset, offset+n, e)
		}
	}
	s.used -= n
	i, _ := slices.BinarySearchFunc(s.free, offset, func(e Extent, o int64) int {
		switch {
		case e.Offset < o:
			return -1
		case e.Offset > o:
			return 1
		}
		return 0
	})
	s.free = slices.Insert(s.free, i, Extent{offset, n})
	if i+1 < len(s.free) && s.free[i].end() == s.free[i+1].Offset {
		s.free[i].Length += s.free[i+1].Length
		s.free = slices.Delete(s.free, i+1, i+2)
	}
	if i > 0 && s.free[i-1].end() == s.free[i].Offset {
		s.free[i-1].Length += s.free[i].Length
		s.free = slices.Delete(s.free, i, i+1)
	}
	if last := len(s.free) - 1; last >= 0 && s.free[last].end() == s.end {
		s.end = s.free[last].Offset
		s.free = s.free[:last]
	}
}

// ReleaseAll frees what Reserve has allocated, in one pass over the free extents. It sorts gone.
func (s *Space) ReleaseAll(gone []Extent) {
	slices.SortFunc(gone, func(a, b Extent) int { return cmp.Compare(a.Offset, b.Offset) })
	merged := make([]Extent, 0, len(s.free)+len(gone))
	add := func(e Extent) {
		last := len(merged) - 1
		if invariants.Enabled && last >= 0 {
			invariants.Check(merged[last].end() <= e.Offset,
				"arena: release of %v, of which %v is free", e, merged[last])
		}
		if last >= 0 && merged[last].end() == e.Offset {
			merged[last].Length += e.Length
		} else {
			merged = append(merged, e)
		}
	}
	free := s.free
	for _, e := range gone {
		if e.Length == 0 {
			continue
		}
		if e.Offset < 0 || e.Length < 0 || e.end() > s.end || e.Length > s.used {
			panic(fmt.Sprintf("arena: release of %v which is not allocated", e))
		}
		for len(free) > 0 && free[0].Offset < e.Offset {
			add(free[0])
			free = free[1:]
		}
		add(e)
		s.used -= e.Length
	}
	for _, e := range free {
		add(e)
	}
	if last := len(merged) - 1; last >= 0 && merged[last].end() == s.end {
		s.end = merged[last].Offset
		merged = merged[:last]
	}
	s.free = merged
}

// Resize changes the capacity. It must not be less than what is in use nor, in a dense space, less
// than End.
func (s *Space) Resize(capacity int64) { s.capacity = capacity }

// Capacity returns the bytes that may be in use, and those in use.
func (s *Space) Capacity() (total, used int64) { return s.capacity, s.used }

// End returns the end of the last extent in use.
func (s *Space) End() int64 { return s.end }

func (e Extent) end() int64 { return e.Offset + e.Length }
