package memory

import "slices"

// Values of store.where for samples that are not held. For others it is their location.
const (
	absent = 0
	coming = -1 // a Put or Fill is in progress
)

// packed is the location of a sample: its segment's number, whether the copy is in another form
// than as read, the offset there, and 1 so that it is above 0.
type packed int64

// A segment has less than 2^offsetBits bytes.
const (
	offsetBits  = 39
	formBit     = 1 << offsetBits
	segmentBits = offsetBits + 1
)

func pack(number uint32, offset int64, form bool) packed {
	p := packed(int64(number)<<segmentBits | offset)
	if form {
		p |= formBit
	}
	return p + 1
}

func (p packed) segment() uint32 { return uint32((p - 1) >> segmentBits) }
func (p packed) offset() int64   { return int64(p-1) & (formBit - 1) }

// form reports whether the copy is in another form than as read. It begins with a head then (head).
func (p packed) form() bool { return (p-1)&formBit != 0 }

// table has the mapped segments of a store, by number minus first; nil for those that are not.
type table struct {
	first uint32
	list  []*segment
}

func (t *table) of(number uint32) *segment {
	if i := number - t.first; number >= t.first && i < uint32(len(t.list)) {
		return t.list[i]
	}
	return nil
}

// with returns a table that has g as well.
func (t *table) with(g *segment) *table {
	if len(t.list) == 0 {
		return &table{g.number, []*segment{g}}
	}
	return &table{t.first, append(slices.Clone(t.list), g)}
}

// without returns a table that does not have g.
func (t *table) without(g *segment) *table {
	list, first := slices.Clone(t.list), t.first
	list[g.number-first] = nil
	for len(list) > 0 && list[0] == nil {
		list, first = list[1:], first+1
	}
	return &table{first, list}
}
