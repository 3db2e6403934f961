// Package tar finds the samples in tar files by webdataset's rules: members that follow one another
// and have the same name up to the first dot after the last slash, the key, are the fields of a
// sample, and the rest of the name, in lower case, is the field's name. Directories, members
// without a dot and those named __x__ are no fields.
//
// Only headers are read, several archives at once, a page for each member that is larger than that,
// and small fields that the index is to have. An archive that is compressed, cut off, or has what
// would not be read as it was written (links, devices, sparse files, a sample in two places) is an
// error that names the place.
package tar

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/formats"
	"github.com/hdmlp/hdmlp/internal/source/objects"
)

// Keys of the format's options.
const (
	// FieldsKey is which fields there are, in this order: each a name, or several with ";" between
	// them, of which a sample's first counts. Default: all, in the order in which they occur first.
	FieldsKey = "fields"
	// MissingKey is what becomes of samples that lack one of the fields.
	MissingKey = "missing"
	// ValuesKey is which fields of up to MaxValue bytes the index has, too.
	ValuesKey = "values"
)

// MaxValue is the largest value that an index has, in bytes.
const MaxValue = 64

// readers is how many archives are read at once.
const readers = 32

// Format returns the format.
func Format() formats.Format {
	return formats.Format{
		Name: "webdataset", Pattern: "*.tar", Names: []string{"*.tar.*", "*.tgz", "*.tzst"},
		Help: "tar files by webdataset's rules: members KEY.FIELD that follow one another are a sample",
		Options: []option.Option{
			{
				Key: FieldsKey, Kind: option.List, Default: option.Auto,
				Derived: "all, in the order in which they occur first",
				Help:    `Fields, in this order; "jpg;png" is the first of these that a sample has`,
			},
			{
				Key: MissingKey, Kind: option.Enum, Default: none, Values: []string{raise, skip, none},
				Help: "What becomes of samples that lack a field: an error, they are left out, or " +
					"they are delivered without it",
			},
			{
				Key: ValuesKey, Kind: option.List, Default: "cls, txt",
				Help: "Fields whose contents of up to 64 bytes are in the index, too",
			},
		},
		Index: Index,
	}
}

// What becomes of samples that lack a field.
const (
	raise = "raise" // it is an error
	skip  = "skip"  // they are left out
	none  = "none"  // they are delivered without it
)

// Index implements formats.Format.
func Index(ctx context.Context, o objects.Objects, names []string, opts formats.Options,
) (*source.Index, error) {
	wanted, err := choices(option.Get[[]string](opts.Values, FieldsKey))
	if err != nil {
		return nil, err
	}
	values := []string{"cls", "txt"}
	if given, ok := opts.Values[ValuesKey]; ok {
		values = given.([]string)
	}
	shards := make([]*shard, len(names))
	for i, name := range names {
		shards[i] = &shard{name: name, values: values, kept: opts.Kept}
	}
	if err := readAll(ctx, o, shards, opts.Progress); err != nil {
		return nil, err
	}
	b := &builder{wanted: wanted, values: values, missing: none}
	if m := option.Get[string](opts.Values, MissingKey); m != "" {
		b.missing = m
	}
	return b.build(shards, opts.Origin)
}

// choice is a field that was asked for: the name that it has, and those of which the first counts.
type choice struct {
	name string
	of   []string
}

func choices(fields []string) ([]choice, error) {
	var list []choice
	seen := map[string]string{}
	for _, f := range fields {
		c := choice{name: f, of: strings.Split(strings.ToLower(f), ";")}
		for _, name := range c.of {
			if name == "" {
				return nil, fmt.Errorf("fields: %q has a field without a name", f)
			}
			if other, ok := seen[name]; ok {
				return nil, fmt.Errorf("fields: %q is in %q and in %q; give it once", name, other, f)
			}
			seen[name] = f
		}
		list = append(list, c)
	}
	return list, nil
}

// part is a field of a sample in its shard.
type part struct {
	name         string
	offset, size int64
}

// sample is a sample of a shard.
type sample struct {
	key   string
	parts []part
	// by value; "" where the sample has no such field, or it is too large
	values []string
}

// shard is one archive.
type shard struct {
	name   string
	values []string
	kept   formats.Kept // nil: nothing is kept

	object  source.Object
	samples []sample
	names   map[string]string // of fields, so that each is in memory once
	first   map[string]int64  // per key that has ended: the offset of its first field
	walker  walker
}

// readAll reads shards, several at once. The error is that of the first shard that has one; those
// after it are given up.
func readAll(ctx context.Context, o objects.Objects, shards []*shard, progress func(int64)) error {
	var (
		reading sync.WaitGroup
		mu      sync.Mutex // guards the following
		next    int
		found   int64
		cancel  = make([]context.CancelFunc, len(shards)) // of those being read
		end     = len(shards)                             // the first with an error
		failed  error
	)
	// take returns the next shard's number, and its context; false: no more are to be read.
	take := func() (int, context.Context, bool) {
		mu.Lock()
		defer mu.Unlock()
		i := next
		if i >= end {
			return 0, nil, false
		}
		next++
		own, stop := context.WithCancel(ctx)
		cancel[i] = stop
		return i, own, true
	}
	done := func(i int, err error) {
		mu.Lock()
		defer mu.Unlock()
		cancel[i]()
		found += int64(len(shards[i].samples))
		switch {
		case err == nil && progress != nil:
			progress(found)
		case err != nil && i < end:
			end, failed = i, err
			for _, stop := range cancel[i+1:] {
				if stop != nil {
					stop()
				}
			}
		}
	}
	for range min(readers, len(shards)) {
		reading.Go(func() {
			for i, own, ok := take(); ok; i, own, ok = take() {
				done(i, shards[i].read(own, o))
			}
		})
	}
	reading.Wait()
	return failed
}

// read finds the samples of the shard.
func (s *shard) read(ctx context.Context, o objects.Objects) error {
	var err error
	if s.object, err = o.Stat(ctx, s.name); err != nil {
		return err
	}
	s.walker = walker{ctx: ctx, objects: o, object: &s.object}
	if s.takeKept() {
		return nil
	}
	s.names, s.first = map[string]string{}, map[string]int64{}
	s.walker.ahead, _ = o.(objects.Ahead)
	if err := s.checkArchive(); err != nil {
		return err
	}
	err = s.walker.walk(s.add)
	s.walker = walker{objects: o, object: &s.object} // without its buffer
	s.first = nil
	if err == nil {
		s.keep()
	}
	return err
}

// compressed are how compressed files begin, and what they are.
var compressed = []struct{ magic, name string }{
	{"\x1f\x8b", "gzip"},
	{"\x28\xb5\x2f\xfd", "zstd"},
	{"BZh", "bzip2"},
	{"\xfd7zXZ\x00", "xz"},
	{"PK\x03\x04", "zip"},
	{"\x04\x22\x4d\x18", "lz4"},
}

// checkArchive returns an error for what is no tar file, with what to do about it.
func (s *shard) checkArchive() error {
	if s.object.Size == 0 {
		return s.walker.failed(0, "", errors.New("the file is empty"))
	}
	head, err := s.walker.read(0, min(blockSize, s.object.Size))
	if err != nil {
		return s.walker.failed(0, "", err)
	}
	for _, c := range compressed {
		if strings.HasPrefix(string(head), c.magic) {
			return s.walker.failed(0, "", fmt.Errorf("it is compressed (%s), so that no part of it "+
				"can be read alone; decompress it: most of its members are compressed themselves",
				c.name))
		}
	}
	return nil
}

// split splits a member's name into its key and its suffix, as webdataset does; ok is false if it
// has none.
func split(name string) (key, suffix string, ok bool) {
	base := strings.LastIndexByte(name, '/') + 1
	dot := strings.IndexByte(name[base:], '.')
	switch {
	case dot < 0:
		return "", "", false
	case dot > 0:
		return name[:base+dot], name[base+dot+1:], true
	}
	// The name begins with a dot: the key is its directory, if that has no dot.
	dir := name[:base]
	last := strings.LastIndexByte(strings.TrimSuffix(dir, "/"), '/') + 1
	if dir == "" || strings.Contains(dir[last:], ".") {
		return "", "", false
	}
	return dir, name[base+1:], true
}

// isMeta reports whether webdataset leaves out a member for its name: __x__, or what is in such a
// directory.
func isMeta(name string) bool {
	first, _, _ := strings.Cut(name, "/")
	return len(first) >= 4 && strings.HasPrefix(first, "__") && strings.HasSuffix(first, "__")
}

// add adds a member to the shard's samples.
func (s *shard) add(m member, offset int64) error {
	if isMeta(m.name) {
		return nil
	}
	key, suffix, ok := split(m.name)
	if !ok {
		return nil
	}
	if suffix == "" {
		return errors.New("its name ends with a dot, and a field needs a name")
	}
	if strings.Contains(key, "..") && slices.Contains(strings.Split(key, "/"), "..") {
		return errors.New(`its name leads out of the archive by ".."`)
	}
	if strings.IndexByte(key, 0) >= 0 {
		return errors.New("its name has a zero byte")
	}
	suffix = strings.ToLower(suffix)
	name, ok := s.names[suffix]
	if !ok {
		name = strings.Clone(suffix)
		s.names[name] = name
	}
	if err := s.begin(key, offset); err != nil {
		return err
	}
	now := &s.samples[len(s.samples)-1]
	for _, p := range now.parts {
		if p.name == name {
			return fmt.Errorf("the sample %q has the field %q twice: at byte %d and at byte %d", key,
				name, p.offset, offset)
		}
	}
	now.parts = append(now.parts, part{name, offset, m.size})
	return s.keepValue(now, name, offset, m.size)
}

// begin begins another sample if the key is not that of the last one.
func (s *shard) begin(key string, offset int64) error {
	if n := len(s.samples); n > 0 {
		last := &s.samples[n-1]
		if last.key == key {
			return nil
		}
		s.first[last.key] = last.parts[0].offset
	}
	if at, ok := s.first[key]; ok {
		return fmt.Errorf("the key %q was already at byte %d, with others between: the fields of a "+
			"sample must follow one another; sort the archive's members by name", key, at)
	}
	s.samples = append(s.samples, sample{key: strings.Clone(key)})
	return nil
}

// keepValue reads a field whose contents the index has, too.
func (s *shard) keepValue(now *sample, name string, offset, size int64) error {
	i := slices.Index(s.values, name)
	if i < 0 || size > MaxValue {
		return nil
	}
	data, err := s.walker.read(offset, size)
	if err != nil {
		return err
	}
	if now.values == nil {
		now.values = make([]string, len(s.values))
	}
	now.values[i] = string(data)
	return nil
}

// builder makes the index of what was found.
type builder struct {
	wanted  []choice
	values  []string
	missing string
}

// build makes the index: the shards in their order, the members in theirs.
func (x *builder) build(shards []*shard, origin []string) (*source.Index, error) {
	if len(x.wanted) == 0 {
		x.wanted = everyField(shards)
	}
	if len(x.wanted) == 0 {
		return nil, errors.New("the archives have no members with a dot in their names, as " +
			"0001.jpg: there are no samples")
	}
	fields := make([]string, len(x.wanted))
	place := map[string]int{}
	rank := map[string]int{}
	for i, c := range x.wanted {
		fields[i] = c.name
		for r, name := range c.of {
			place[name], rank[name] = i, r
		}
	}
	b := source.NewRecordBuilder(fields, nil, x.values)
	b.Origin = origin
	for _, s := range shards {
		object := b.Object(s.object)
		for i := range s.samples {
			v := &s.samples[i]
			r := v.record(object, len(fields), place, rank, len(x.values))
			lacks, all := lacking(r.Ranges)
			switch {
			case lacks < 0:
			case x.missing == skip:
				continue
			case all:
				return nil, s.walker.failed(v.parts[0].offset, v.key, fmt.Errorf("the sample has none "+
					"of the fields %s; it has %s", strings.Join(fields, ", "), v.fields()))
			case x.missing == raise:
				return nil, s.walker.failed(v.parts[0].offset, v.key, fmt.Errorf("the sample has no "+
					"field %s; it has %s (missing: skip leaves such samples out)", fields[lacks],
					v.fields()))
			}
			b.Add(r)
		}
		s.samples = nil
	}
	return b.Build()
}

// lacking returns the first field that a sample lacks, or -1, and whether it lacks all.
func lacking(ranges []source.Range) (first int, all bool) {
	lacks := func(r source.Range) bool { return r.Length == source.Missing }
	has := func(r source.Range) bool { return r.Length != source.Missing }
	return slices.IndexFunc(ranges, lacks), !slices.ContainsFunc(ranges, has)
}

// fields returns the names of the sample's fields, for messages.
func (v *sample) fields() string {
	var names []string
	for _, p := range v.parts {
		names = append(names, human.Name(p.name))
	}
	return strings.Join(names, ", ")
}

// record returns the sample as the index has it.
func (v *sample) record(object, fields int, place, rank map[string]int, values int) source.Record {
	r := source.Record{
		Key: v.key, Ranges: make([]source.Range, fields), Values: v.values,
	}
	if r.Values == nil {
		r.Values = make([]string, values)
	}
	best := make([]int, fields)
	for i := range r.Ranges {
		r.Ranges[i].Length = source.Missing
	}
	for _, p := range v.parts {
		i, ok := place[p.name]
		if !ok || r.Ranges[i].Length != source.Missing && best[i] < rank[p.name] {
			continue
		}
		best[i] = rank[p.name]
		r.Ranges[i] = source.Range{Object: object, Offset: p.offset, Length: p.size}
	}
	return r
}

// everyField returns all fields in the order in which they occur first.
func everyField(shards []*shard) (list []choice) {
	seen := map[string]bool{}
	for _, s := range shards {
		for _, v := range s.samples {
			for _, p := range v.parts {
				if !seen[p.name] {
					seen[p.name] = true
					list = append(list, choice{p.name, []string{p.name}})
				}
			}
		}
	}
	return list
}
