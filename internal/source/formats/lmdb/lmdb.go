// Package lmdb finds the samples in LMDB data files: each record is a sample, in the order of the
// keys, as a cursor of LMDB gives them.
//
// Files are never mapped: their B+ trees are read level by level, adjacent pages at once and
// several runs of them in parallel. The leaves say exactly where each value lies, so that values
// are read for the index only where their decoder needs the beginning or the end.
//
// LMDB replaces pages that no snapshot has any more, in place. So that no read returns bytes of
// another transaction, an object is tagged with its last transaction, and its tag is checked after
// each read: see Objects.
package lmdb

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"sync/atomic"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/formats"
	"github.com/hdmlp/hdmlp/internal/source/objects"
)

// Keys of the format's options.
const (
	DatabaseKey = "database"
	DecoderKey  = "decoder"
	LabelKey    = "label"
)

// Field names and columns of the index.
const (
	ValueField  = "value"      // of the decoder raw
	DataField   = "data"       // of a Datum: its bytes
	FloatsField = "float_data" // of a Datum: its floats, little endian
	LabelColumn = "label"
	// KeyColumn has the records' keys, if one of them is not UTF-8 or has a zero byte. Then the
	// samples' names are the keys in hex. Otherwise there is no such column.
	KeyColumn = "key"
)

const (
	dataFile = "data.mdb" // of an environment that is a directory
	raw      = "raw"
	caffe    = "datum"
	prefix   = "prefix"
)

// Format returns the format.
func Format() formats.Format {
	return formats.Format{
		Name: "lmdb", Pattern: "data.mdb", Names: []string{"*.mdb", "*.lmdb"},
		Help: "LMDB environments: directories with a data.mdb, or data files",
		Options: []option.Option{
			{
				Key: DatabaseKey, Kind: option.Text, Max: 511,
				Help: "The named database that has the samples; empty: the main one",
			},
			{
				Key: DecoderKey, Kind: option.Enum, Default: raw, Values: []string{raw, caffe},
				Help: "What a value is: bytes, or Caffe's Datum, of which the sample is the data, and " +
					"label, channels, height, width and encoded are in the index",
			},
			{
				Key: LabelKey, Kind: option.Enum, Default: "none", Values: []string{"none", prefix},
				Help: "Whether a sample's label is the part of its key before the first _ or /",
			},
		},
		Index: Index, Objects: Objects,
	}
}

// Index implements formats.Format. A name is that of a data file, or of a directory that has one.
func Index(ctx context.Context, o objects.Objects, names []string, opts formats.Options,
) (*source.Index, error) {
	x := &indexer{
		objects: Objects(o), progress: opts.Progress, origin: opts.Origin,
		database: option.Get[string](opts.Values, DatabaseKey),
		datum:    option.Get[string](opts.Values, DecoderKey) == caffe,
		prefix:   option.Get[string](opts.Values, LabelKey) == prefix,
	}
	if x.datum && x.prefix {
		return nil, fmt.Errorf("%s = %q: a Datum has a label of its own; leave one of the two out",
			LabelKey, prefix)
	}
	for _, name := range names {
		if err := x.add(ctx, name); err != nil {
			return nil, err
		}
	}
	return x.build()
}

// indexer collects the records of data files.
type indexer struct {
	origin        []string
	objects       objects.Objects
	progress      func(int64)
	database      string
	datum, prefix bool

	files  []source.Object
	leaves [][]leaf // per file
	found  atomic.Int64
	seen   struct {
		records              int
		binary, data, floats bool
	}
}

// add reads the tree of one file.
func (x *indexer) add(ctx context.Context, name string) error {
	object, err := x.objects.Stat(ctx, name)
	if err != nil {
		isDirectory := errors.Is(err, source.ErrUnreadable)
		inside, insideErr := x.objects.Stat(ctx, path.Join(name, dataFile))
		switch {
		case insideErr == nil:
			object = inside
		case isDirectory:
			return insideErr
		default:
			return err
		}
	}
	leaves, err := x.read(ctx, object)
	// Pages that a writer has replaced meanwhile are not at fault.
	if changed := x.changed(ctx, &object); changed != nil {
		return changed
	}
	x.files, x.leaves = append(x.files, object), append(x.leaves, leaves)
	for _, l := range leaves {
		x.seen.records += len(l.items)
		x.seen.binary = x.seen.binary || l.binary
		for _, d := range l.datums {
			x.seen.data = x.seen.data || d.data.Length != source.Missing
			x.seen.floats = x.seen.floats || d.floats.Length != source.Missing
		}
	}
	return err
}

// changed returns an error if the file is not what it was when it was asked for.
func (x *indexer) changed(ctx context.Context, object *source.Object) error {
	now, err := x.objects.Stat(ctx, object.Name)
	if err != nil {
		return err
	}
	if kind, _ := objects.Compare(object, &now); kind != nil {
		return &objects.Error{
			Path: x.objects.Path(object.Name), Kind: kind,
			Err: errors.New("a program writes to it: stop it, or take a copy that mdb_copy has made"),
		}
	}
	return nil
}

// count reports that more records were found.
func (x *indexer) count(records int) {
	if found := x.found.Add(int64(records)); x.progress != nil {
		x.progress(found)
	}
}

// read returns the leaves of the database that was asked for.
func (x *indexer) read(ctx context.Context, object source.Object) ([]leaf, error) {
	plain, o := untagged(x.objects, object)
	f, err := openFile(ctx, o, plain)
	if err != nil {
		return nil, err
	}
	f.isMain = true
	if x.database == "" {
		f.datum, f.prefix = x.datum, x.prefix
		f.found = x.count
	}
	leaves, err := f.leaves(ctx, f.main)
	if err != nil {
		return nil, f.failed(0, err)
	}
	var all []named
	for _, l := range leaves {
		all = append(all, l.named...)
	}
	if x.database == "" && len(all) == 0 {
		return leaves, nil
	}
	i := slices.IndexFunc(all, func(n named) bool { return n.name == x.database })
	if i < 0 {
		return nil, f.failed(0, noDatabase(x.database, all))
	}
	f.isMain = false
	f.datum, f.prefix = x.datum, x.prefix
	f.found = x.count
	if leaves, err = f.leaves(ctx, all[i].database); err != nil {
		return nil, f.failed(0, fmt.Errorf("database %s: %w", human.Name(x.database), err))
	}
	return leaves, nil
}
