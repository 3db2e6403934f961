package source

import (
	"errors"
	"fmt"
	"path"
	"slices"
)

// Part returns the index of some of the samples, given by ascending ID, which are samples 0, 1 and
// so on of it. It has the directories, objects, classes and columns of the whole dataset. Its
// version covers the listing of the part alone, not the contents of excerpts. It is for
// measurements, whose sources read by the IDs of the whole dataset.
func (x *Index) Part(ids []int32) (*Index, error) {
	if len(ids) == 0 {
		return nil, errors.New("part of a dataset: no samples")
	}
	for i, id := range ids {
		if id < 0 || int(id) >= x.Len() || i > 0 && id <= ids[i-1] {
			return nil, fmt.Errorf("part of a dataset: sample %d at place %d; samples are 0 to %d, "+
				"ascending", id, i, x.Len()-1)
		}
	}
	build := x.partOfFiles
	if x.tables != nil {
		build = x.partOfRecords
	}
	part, err := build(ids)
	if err != nil {
		return nil, err
	}
	return part.WithContents(make([][16]byte, len(part.Excerpts())))
}

func (x *Index) partOfFiles(ids []int32) (*Index, error) {
	b := NewBuilder(x.classes, x.extensions)
	b.Grow(len(ids))
	for _, d := range x.Directories() {
		b.Directory(d)
		first, _ := slices.BinarySearch(ids, int32(d.First))
		for _, id := range ids[first:] {
			if int(id) >= d.End {
				break
			}
			b.Sample(path.Base(x.Name(int(id))), x.Size(int(id)), 0, x.Stamp(int(id)))
		}
	}
	return b.Build()
}

func (x *Index) partOfRecords(ids []int32) (*Index, error) {
	b := NewRecordBuilder(x.Fields(), x.classes, x.Columns())
	b.Origin = x.extensions
	for o := range x.Objects() {
		b.Object(x.Object(o))
	}
	for _, id := range ids {
		r := Record{Class: x.Label(int(id)), Ranges: x.Ranges(nil, int(id))}
		if x.layout.records.keyed {
			r.Key = x.Name(int(id))
		}
		for c := range x.Columns() {
			r.Values = append(r.Values, x.Value(c, int(id)))
		}
		b.Add(r)
	}
	return b.Build()
}
