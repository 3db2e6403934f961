package lmdb

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/source"
)

// leaf is what is kept of a page with records.
type leaf struct {
	keys   []byte // one after another
	binary bool   // one of them is no text
	items  []item
	datums []datum // of the items, if values are Datums
	named  []named
}

// item is a record.
type item struct {
	keyEnd         int
	offset, length int64 // of the value, in the file
}

// named is a named database.
type named struct {
	name     string
	database database
}

// leaf returns the records and databases of a page.
func (f *file) leaf(ctx context.Context, p page, list []node) (leaf, error) {
	l := leaf{items: make([]item, 0, len(list))}
	w := window{
		size: f.pageSize, have: p.data, at: int64(p.number) * f.pageSize,
		read: func(at int64, b []byte) error { return f.read(ctx, at, b) },
	}
	for _, n := range list {
		if f.isMain && n.flags == subNode && n.size == databaseSize {
			l.named = append(l.named, named{string(n.key), parseDatabase(p.data[n.at:])})
			continue
		}
		v, err := f.value(p, n)
		if err == nil && f.datum {
			w.value = v
			var d datum
			d, err = parseDatum(v, w.bytes)
			l.datums = append(l.datums, d)
		}
		if err == nil && f.prefix && prefixOf(string(n.key)) == "" {
			err = errors.New("nothing precedes a _ or / in it, of which " + LabelKey +
				` = "prefix" makes a class`)
		}
		if err != nil {
			return l, fmt.Errorf("the key %.100q: %w", n.key, err)
		}
		l.keys = append(l.keys, n.key...)
		l.items = append(l.items, item{len(l.keys), v.Offset, v.Length})
		l.binary = l.binary || !isText(n.key)
	}
	if f.found != nil {
		f.found(len(l.items))
	}
	return l, nil
}

// isText reports whether an index can have the key as it is.
func isText(key []byte) bool { return utf8.Valid(key) && bytes.IndexByte(key, 0) < 0 }

// value returns where a record's value lies: in the leaf, or on pages of its own.
func (f *file) value(p page, n node) (source.Range, error) {
	switch n.flags {
	case 0:
		return source.Range{Offset: int64(p.number)*f.pageSize + int64(n.at), Length: n.size}, nil
	case bigNode:
		first := u64(p.data[n.at:])
		last := first + uint64((headerSize+n.size-1)/f.pageSize)
		return source.Range{Offset: int64(first)*f.pageSize + headerSize, Length: n.size},
			f.check(first, last)
	}
	return source.Range{}, fmt.Errorf("its flags %#x are not those of a record: the file is damaged",
		n.flags)
}

// noDatabase returns the error for a name that no named database has.
func noDatabase(name string, all []named) error {
	const most = 10
	var names []string
	for _, n := range all[:min(len(all), most)] {
		names = append(names, human.Name(n.name))
	}
	if len(all) > most {
		names = append(names, fmt.Sprintf("%d more", len(all)-most))
	}
	switch {
	case len(all) == 0:
		return fmt.Errorf("it has no named databases, and so none called %s; leave %s out",
			human.Name(name), DatabaseKey)
	case name == "":
		return fmt.Errorf("it has named databases, so that its records are not all samples: choose "+
			"one with %s: %s", DatabaseKey, human.List(names))
	}
	return fmt.Errorf("it has no database %s; it has %s", human.Name(name), human.And(names))
}

// build makes the index: the files in their order, the records in that of their keys.
func (x *indexer) build() (*source.Index, error) {
	if x.seen.records == 0 {
		return nil, errors.New("the LMDB files have no records: there are no samples")
	}
	fields := []string{ValueField}
	var columns []string
	switch {
	case x.datum:
		columns = slices.Clone(datumColumns)
		if fields = []string{DataField}; x.seen.floats && x.seen.data {
			fields = append(fields, FloatsField)
		} else if x.seen.floats {
			fields = []string{FloatsField}
		}
	case x.prefix:
		columns = []string{LabelColumn}
	}
	if x.seen.binary {
		columns = append(columns, KeyColumn)
	}
	b := source.NewRecordBuilder(fields, nil, columns)
	b.Origin = x.origin
	r := source.Record{Ranges: make([]source.Range, len(fields))} // its slices are reused
	for i, object := range x.files {
		number := b.Object(object)
		for j := range x.leaves[i] {
			l := &x.leaves[i][j]
			for k := range l.items {
				x.record(&r, l, k)
				for f := range r.Ranges {
					r.Ranges[f].Object = number
				}
				b.Add(r)
			}
			*l = leaf{} // its memory is no longer needed
		}
	}
	return b.Build()
}

// record sets r to a record of a leaf.
func (x *indexer) record(r *source.Record, l *leaf, i int) {
	begin, v := 0, l.items[i]
	if i > 0 {
		begin = l.items[i-1].keyEnd
	}
	r.Key, r.Values = string(l.keys[begin:v.keyEnd]), r.Values[:0]
	switch {
	case !x.datum:
		r.Ranges[0] = source.Range{Offset: v.offset, Length: v.length}
	case x.seen.data:
		r.Ranges[0] = l.datums[i].data
	}
	if x.seen.floats {
		r.Ranges[len(r.Ranges)-1] = l.datums[i].floats
	}
	if x.datum {
		r.Values = l.datums[i].values(r.Values)
	}
	if x.prefix {
		r.Values = append(r.Values, prefixOf(r.Key))
	}
	if x.seen.binary {
		r.Values = append(r.Values, r.Key)
		r.Key = hex.EncodeToString([]byte(r.Key))
	}
}

// prefixOf returns the part of a key before the first _ or /; "" if there is none.
func prefixOf(key string) string { return key[:max(strings.IndexAny(key, "_/"), 0)] }
