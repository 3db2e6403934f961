package manifest

import (
	"encoding/binary"
	"fmt"

	"github.com/hdmlp/hdmlp/internal/source"
)

// runSize is the size of a run in bytes: count, object, offset, stride and length, i64 each.
const runSize = 40

// Limits of runs. A manifest of a few bytes may say of any number of records where they are, so
// that its length does not bound what is made of it.
const (
	mostInRuns = 1 << 28
	mostOffset = 1<<40 - 1
)

// run is a number of records of a field, which lie at equal distances in one object.
type run struct {
	count, object, offset, stride, length int64
}

// run returns run i of a field.
func (s *sections) run(f, i int) run {
	b := s.runs[f][runSize*i:]
	word := func(k int) int64 { return int64(binary.LittleEndian.Uint64(b[8*k:])) }
	return run{word(0), word(1), word(2), word(3), word(4)}
}

// checkRuns checks that the runs of a field are those of all records, and that no offset
// overflows. Whether the ranges lie in their objects, at says.
func (s *sections) checkRuns(f int) error {
	left := int64(s.Samples)
	for i := range s.Runs[f] {
		r := s.run(f, i)
		switch {
		case r.count < 1 || r.count > left:
			return fmt.Errorf("run %d has %d records of %d", i, r.count, left)
		case r.object < 0 || r.object >= int64(s.Objects):
			return fmt.Errorf("run %d is in object %d of %d", i, r.object, s.Objects)
		case r.offset < 0 || r.offset > mostOffset || r.stride < 0 || r.stride > mostOffset ||
			r.length < 0 || r.stride > 0 && r.count-1 > (mostOffset-r.offset)/r.stride:
			return fmt.Errorf("run %d has %d records of %d bytes, %d bytes apart, from byte %d on",
				i, r.count, r.length, r.stride, r.offset)
		}
		left -= r.count
	}
	if left > 0 {
		return fmt.Errorf("its runs lack %d of %d records", left, s.Samples)
	}
	return nil
}

// entry is a range of the list.
type entry struct{ id, field, object int }

// first returns the first range that is in one of these objects; nil: there is none.
func (s *sections) first(bad map[int]error) (found *entry) {
	if s.Runs == nil {
		for id := range s.Samples {
			for f := range s.Fields {
				object := int(int32(binary.LittleEndian.Uint32(s.objects[4*(f*s.Samples+id):])))
				if bad[object] != nil {
					return &entry{id, f, object}
				}
			}
		}
		return nil
	}
	for f := range s.Fields {
		id := 0
		for i := range s.Runs[f] {
			r := s.run(f, i)
			if bad[int(r.object)] != nil && (found == nil || id < found.id) {
				found = &entry{id, f, int(r.object)}
			}
			id += int(r.count)
		}
	}
	return found
}

// cursor finds the ranges of records in runs, one record after another.
type cursor struct {
	s       *sections
	runs    []int // of each field, the run of the last record
	current []run
	begins  []int64 // the record with which it begins
}

func newCursor(s *sections) *cursor {
	n := len(s.Fields)
	c := &cursor{s: s, runs: make([]int, n), current: make([]run, n), begins: make([]int64, n)}
	for f := range n {
		if s.Runs[f] > 0 {
			c.current[f] = s.run(f, 0)
		}
	}
	return c
}

// at returns the range of a record's field. id must not be less than that of the last call.
func (c *cursor) at(f, id int, listed []source.Object) (source.Range, error) {
	r := &c.current[f]
	for int64(id)-c.begins[f] >= r.count {
		c.begins[f] += r.count
		c.runs[f]++
		*r = c.s.run(f, c.runs[f])
	}
	at := source.Range{
		Object: int(r.object), Offset: r.offset + (int64(id)-c.begins[f])*r.stride, Length: r.length,
	}
	return within(at, &listed[r.object])
}
