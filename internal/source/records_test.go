package source

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestPack(t *testing.T) {
	for _, c := range []struct {
		lengths, offsets []int64
		size             int64
	}{
		{nil, nil, 0},
		{[]int64{0}, []int64{0}, 0},
		{[]int64{7}, []int64{0}, 7}, // a sample of one field is that field
		{[]int64{64, 1}, []int64{0, 64}, 65},
		{[]int64{65, 0, 3}, []int64{0, 128, 128}, 131},
		{[]int64{3, Missing, 5}, []int64{0, 64, 64}, 69},
		{[]int64{Missing, 5, Missing}, []int64{0, 0, 64}, 5},
		{[]int64{1 << 40, 2}, []int64{0, 1 << 40}, 1<<40 + 2},
	} {
		offsets, size := Pack(nil, c.lengths)
		if diff := cmp.Diff(c.offsets, offsets); diff != "" || size != c.size {
			t.Errorf("%v: size %d, not %d; offsets (-want +got):\n%s", c.lengths, size, c.size, diff)
		}
	}
}

// smallRecords returns the index of the golden file: three shards in two directories, one of them
// without samples, a field that some samples do not have, keys that are not UTF-8, and values.
func smallRecords(t testing.TB) *Index {
	b := NewRecordBuilder([]string{"jpg", "seg.png"}, []string{"cat", "dog"}, []string{"cls"})
	second := b.Object(Object{
		Name: "b/1.tar", Size: 4096, Modified: 7, Stamp: NewStamp(4096, 7, 8, 9),
	})
	first := b.Object(Object{Name: "0.tar", Size: math.MaxUint32 + 10, Modified: 5})
	b.Object(Object{Name: "b/0.tar", Size: 3})
	b.Add(Record{Key: "x/1", Class: 1, Values: []string{"1"}, Ranges: []Range{
		{first, math.MaxUint32, 10}, {first, 512, 0},
	}})
	b.Add(Record{Key: "x/\xff", Class: 0, Values: []string{""}, Ranges: []Range{
		{first, 1024, 65}, {Length: Missing},
	}})
	b.Add(Record{Class: 1, Values: []string{"dog"}, Ranges: []Range{
		{second, 512, 100}, {second, 1024, 3072},
	}})
	x, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	x, err = x.WithContents([][16]byte{
		ContentDigest([]byte("1")), Unreadable, ContentDigest([]byte("3")),
	})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// TestFormatOfRecordsIsTheGoldenFile pins the format: files of this version exist.
func TestFormatOfRecordsIsTheGoldenFile(t *testing.T) {
	const path = "testdata/index-3.golden"
	got := encode(t, smallRecords(t))
	if *rewrite {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, got) {
		t.Errorf("the file has changed; if that is intended, the format needs a new "+
			"version\nwant %x\ngot  %x", want, got)
	}
}

func TestIndexOfRecordsReturnsWhatWasBuilt(t *testing.T) {
	built := smallRecords(t)
	decoded, err := decode(encode(t, built))
	if err != nil {
		t.Fatal(err)
	}
	for what, x := range map[string]*Index{"built": built, "decoded": decoded} {
		var samples []string
		for id := range x.Len() {
			samples = append(samples, fmt.Sprintf("%q %d %d %q %v", x.Name(id), x.Label(id),
				x.Size(id), x.Value(0, id), x.Ranges(nil, id)))
		}
		want := []string{
			`"x/1" 1 64 "1" [{0 4294967295 10} {0 512 0}]`,
			`"x/\xff" 0 65 "" [{0 1024 65} {0 0 -1}]`,
			`"" 1 3200 "dog" [{2 512 100} {2 1024 3072}]`,
		}
		if diff := cmp.Diff(want, samples); diff != "" {
			t.Errorf("%s: samples (-want +got):\n%s", what, diff)
		}
		if x.Bytes() != 64+65+3200 || x.MaxSize() != 3200 {
			t.Errorf("%s: %d bytes, at most %d", what, x.Bytes(), x.MaxSize())
		}
		var objects []string
		for o := range x.Objects() {
			object := x.Object(o)
			objects = append(objects, fmt.Sprintf("%s %d %v", object.Name, object.Size,
				object.Stamp == NewStamp(4096, 7, 8, 9)))
		}
		if diff := cmp.Diff([]string{
			"0.tar 4294967305 false", "b/0.tar 3 false", "b/1.tar 4096 true",
		}, objects); diff != "" {
			t.Errorf("%s: objects (-want +got):\n%s", what, diff)
		}
		if x.Stamp(2) != NewStamp(4096, 7, 8, 9) || x.Stamp(0) != 0 {
			t.Errorf("%s: stamps %x and %x", what, x.Stamp(2), x.Stamp(0))
		}
		for _, c := range []struct{ want, got any }{
			{[]int{1, 2}, x.ClassSizes()},
			{[]string{"cat", "dog"}, x.Classes()},
			{[]string{"jpg", "seg.png"}, x.Fields()},
			{[]string{"cls"}, x.Columns()},
		} {
			if diff := cmp.Diff(c.want, c.got); diff != "" {
				t.Errorf("%s: (-want +got):\n%s", what, diff)
			}
		}
	}
	if !built.Equal(decoded) || built.Fingerprint() != decoded.Fingerprint() {
		t.Error("the decoded index differs")
	}
	buf, ranges := make([]byte, 0, 64), make([]Range, 0, 2)
	if n := testing.AllocsPerRun(100, func() {
		buf = built.AppendName(buf[:0], 2)
		ranges = built.Ranges(ranges[:0], 1)
		_ = built.Label(0) + int(built.Size(1)) + int(built.Stamp(2))
	}); n != 0 {
		t.Errorf("%v allocations per lookup", n)
	}
}

// TestASampleOfSeveralObjectsHasAStampOfAll: any of them changes it, in the half that it changes.
func TestASampleOfSeveralObjectsHasAStampOfAll(t *testing.T) {
	stamp := func(image, mask Stamp) Stamp {
		b := NewRecordBuilder([]string{"image", "mask"}, nil, nil)
		b.Add(Record{Ranges: []Range{
			{b.Object(Object{Name: "i", Size: 1, Stamp: image}), 0, 1},
			{b.Object(Object{Name: "m", Size: 1, Stamp: mask}), 0, 1},
		}})
		x, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		return x.Stamp(0)
	}
	image, mask := NewStamp(1, 2, 3, 4), NewStamp(1, 3, 4, 5)
	both := stamp(image, mask)
	if both == stamp(mask, image) {
		t.Error("the order of the fields does not matter")
	}
	if replaced := stamp(image, NewStamp(1, 3, 4, 6)); replaced.Written(both) || replaced == both {
		t.Errorf("a mask that was replaced: %x, not %x", replaced, both)
	}
	if written := stamp(NewStamp(1, 7, 7, 4), mask); !written.Written(both) {
		t.Errorf("an image that was written: %x, not %x", written, both)
	}
	if stamp(0, mask) != mask || stamp(image, 0) != image {
		t.Error("an object without a stamp counts")
	}
}

// TestARecordTakesAtMost60Bytes: of three fields in shards, with keys of 12 bytes and a value.
func TestARecordTakesAtMost60Bytes(t *testing.T) {
	b := NewRecordBuilder([]string{"jpg", "json", "cls"}, []string{"a", "b"}, []string{"cls"})
	const shards, members = 100, 1000
	for s := range shards {
		shard := b.Object(Object{Name: fmt.Sprintf("shards/%06d.tar", s), Size: 1 << 30})
		for i := range members {
			at := int64(4096 * i)
			b.Add(Record{
				Key: fmt.Sprintf("%012d", s*members+i), Class: i % 2, Values: []string{"17"},
				Ranges: []Range{{shard, at, 2048}, {shard, at + 2048, 99}, {shard, at + 3000, 2}},
			})
		}
	}
	x, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	if each := float64(x.EncodedSize()) / (shards * members); each > 60 {
		t.Errorf("%.1f bytes per sample", each)
	}
}

// checkRecord checks what every index that decodes must hold of a sample.
func checkRecord(t testing.TB, x *Index, id int) {
	ranges := x.Ranges(nil, id)
	lengths := make([]int64, len(ranges))
	for f, r := range ranges {
		lengths[f] = r.Length
		if r.Length == Missing {
			continue
		}
		if o := x.Object(r.Object); r.Offset < 0 || r.Length < 0 || r.Offset+r.Length > o.Size {
			t.Fatalf("sample %d: %+v of an object of %d bytes", id, r, o.Size)
		} else if !validPath(o.Name) {
			t.Fatalf("object %q", o.Name)
		}
	}
	if _, size := Pack(nil, lengths); size != x.Size(id) {
		t.Fatalf("sample %d has %d bytes, and %d packed", id, x.Size(id), size)
	}
	for c := range x.Columns() {
		_ = x.Value(c, id)
	}
	if label := x.Label(id); label > 0 && label >= len(x.Classes()) {
		t.Fatalf("sample %d has class %d", id, label)
	}
}

// TestRecordsAreThoseThatWereAdded compares random indexes, built and decoded, with the records.
func TestRecordsAreThoseThatWereAdded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.StringMatching(`([ab]/)?([ab]/)?[a-e0-9]{1,3}`), 1, 9,
			rapid.ID).Draw(t, "objects")
		fields := []string{"a", "b", "c"}[:rapid.IntRange(1, 3).Draw(t, "fields")]
		classes := []string{"x", "y"}[:rapid.IntRange(0, 2).Draw(t, "classes")]
		columns := []string{"p", "q"}[:rapid.IntRange(0, 2).Draw(t, "columns")]
		b := NewRecordBuilder(fields, classes, columns)
		var objects []Object
		for i, name := range names {
			o := Object{
				Name: name, Size: rapid.Int64Range(0, 1<<36).Draw(t, "size"), Stamp: Stamp(i),
			}
			if rapid.Bool().Draw(t, "tagged") {
				o.Tag[3] = byte(i + 1)
			}
			objects = append(objects, o)
			b.Object(o)
		}
		var records []Record
		sequential := rapid.Bool().Draw(t, "sequential")
		for i := range rapid.IntRange(0, 60).Draw(t, "samples") {
			r := Record{
				Key:   rapid.StringMatching(`[a-z]{0,4}`).Draw(t, "key"),
				Class: rapid.IntRange(0, max(len(classes)-1, 0)).Draw(t, "class"),
			}
			for range fields {
				o := i / 7 % len(objects)
				if !sequential {
					o = rapid.IntRange(0, len(objects)-1).Draw(t, "object")
				}
				length := rapid.Int64Range(0, objects[o].Size).Draw(t, "length")
				r.Ranges = append(r.Ranges, Range{o, objects[o].Size - length, length})
				if len(r.Ranges) > 1 && rapid.Bool().Draw(t, "missing") {
					r.Ranges[len(r.Ranges)-1] = Range{Length: Missing}
				}
			}
			for range columns {
				r.Values = append(r.Values, rapid.StringMatching(`[0-9]{0,3}`).Draw(t, "value"))
			}
			records = append(records, r)
			b.Add(r)
		}
		built, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		var file bytes.Buffer
		if err := built.Encode(&file); err != nil {
			t.Fatal(err)
		}
		decoded, err := decode(file.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range []*Index{built, decoded} {
			compareRecords(t, x, records, objects)
		}
	})
}

func compareRecords(t *rapid.T, x *Index, records []Record, objects []Object) {
	if x.Len() != len(records) || x.Objects() != len(objects) {
		t.Fatalf("%d samples in %d objects", x.Len(), x.Objects())
	}
	for id, r := range records {
		for f, got := range x.Ranges(nil, id) {
			want := r.Ranges[f]
			if got.Length != want.Length || got.Offset != want.Offset {
				t.Fatalf("sample %d: %+v, not %+v", id, got, want)
			}
			if want.Length != Missing && x.Object(got.Object) != objects[want.Object] {
				t.Fatalf("sample %d: %+v, not %+v", id, x.Object(got.Object), objects[want.Object])
			}
		}
		for c, v := range r.Values {
			if got := x.Value(c, id); got != v {
				t.Fatalf("sample %d, column %d: %q, not %q", id, c, got, v)
			}
		}
		if x.Label(id) != r.Class {
			t.Fatalf("sample %d has class %d, not %d", id, x.Label(id), r.Class)
		}
		keyed := slices.ContainsFunc(records, func(r Record) bool { return r.Key != "" })
		key := r.Key
		if !keyed {
			key = objects[r.Ranges[0].Object].Name
		}
		if x.Name(id) != key {
			t.Fatalf("sample %d is %q, not %q", id, x.Name(id), key)
		}
	}
}

func TestRecordBuilderRefusesWhatIsNoRecord(t *testing.T) {
	for name, add := range map[string]func(b *RecordBuilder, object int){
		"no range":       func(b *RecordBuilder, o int) { b.Add(Record{}) },
		"too many":       func(b *RecordBuilder, o int) { b.Add(Record{Ranges: []Range{{}, {}}}) },
		"no such object": func(b *RecordBuilder, o int) { b.Add(Record{Ranges: []Range{{9, 0, 1}}}) },
		"negative":       func(b *RecordBuilder, o int) { b.Add(Record{Ranges: []Range{{o, -1, 1}}}) },
		"length":         func(b *RecordBuilder, o int) { b.Add(Record{Ranges: []Range{{o, 0, -2}}}) },
		"beyond":         func(b *RecordBuilder, o int) { b.Add(Record{Ranges: []Range{{o, 5, 6}}}) },
		"overflow": func(b *RecordBuilder, o int) {
			b.Add(Record{Ranges: []Range{{o, 5, math.MaxInt64}}})
		},
		"class": func(b *RecordBuilder, o int) {
			b.Add(Record{Class: 1, Ranges: []Range{{o, 0, 1}}})
		},
		"values": func(b *RecordBuilder, o int) {
			b.Add(Record{Values: []string{""}, Ranges: []Range{{o, 0, 1}}})
		},
		"an object twice":    func(b *RecordBuilder, o int) { b.Object(Object{Name: "o", Size: 1}) },
		"an object above":    func(b *RecordBuilder, o int) { b.Object(Object{Name: "../o"}) },
		"an absolute object": func(b *RecordBuilder, o int) { b.Object(Object{Name: "/o"}) },
		"a negative size":    func(b *RecordBuilder, o int) { b.Object(Object{Name: "p", Size: -1}) },
	} {
		b := NewRecordBuilder([]string{"jpg"}, []string{"cat"}, nil)
		add(b, b.Object(Object{Name: "o", Size: 10}))
		if x, err := b.Build(); err == nil {
			t.Errorf("%s: %v", name, x)
		}
	}
	for _, names := range [][]string{nil, {"a", "a"}, {""}} {
		if x, err := NewRecordBuilder(names, nil, nil).Build(); err == nil {
			t.Errorf("fields %q: %v", names, x)
		}
	}
}

func TestDecodeRefusesDamagedRecords(t *testing.T) {
	good := encode(t, smallRecords(t))
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 0x10
		if _, err := decode(bad); !errors.Is(err, ErrIndex) {
			t.Fatalf("byte %d flipped: %v", i, err)
		}
		if _, err := decode(good[:i]); !errors.Is(err, ErrIndex) {
			t.Fatalf("cut off after %d bytes: %v", i, err)
		}
		if i >= 8 && i < len(good)-checksumSize { // with a valid checksum it may be another index
			bad[i] ^= 0x11
			if x, err := decode(sealed(bad)); err == nil {
				for id := range x.Len() {
					checkRecord(t, x, id)
				}
			}
		}
	}
	for field := 16; field < headerSize+recordHeaderSize; field += 8 {
		huge := bytes.Clone(good)
		binary.LittleEndian.PutUint64(huge[field:], 1<<62)
		var err error
		if taken := allocated(func() { _, err = decode(huge) }); !errors.Is(err, ErrIndex) ||
			taken > 1<<16 {
			t.Errorf("field %d: %v; %d bytes were taken", field, err, taken)
		}
	}
}

// TestTheListingCoversAllAboutRecords: what differs in any way has another fingerprint.
func TestTheListingCoversAllAboutRecords(t *testing.T) {
	seen := map[[16]byte]string{}
	add := func(name string, change func(o *Object, r *Record), fields ...string) {
		o := Object{Name: "a.tar", Size: 4096, Modified: 3, Stamp: 5}
		r := Record{Key: "k", Class: 1, Values: []string{"v"}, Ranges: []Range{
			{0, 512, 7}, {0, 1024, 9},
		}}
		change(&o, &r)
		if len(fields) == 0 {
			fields = []string{"jpg", "json"}
		}
		b := NewRecordBuilder(fields, []string{"x", "y"}, []string{"c"})
		b.Object(o)
		b.Add(r)
		x, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[x.Listing()]; ok {
			t.Errorf("%s: as %s", name, other)
		}
		seen[x.Listing()] = name
	}
	add("nothing", func(*Object, *Record) {})
	add("name", func(o *Object, _ *Record) { o.Name = "b.tar" })
	add("size", func(o *Object, _ *Record) { o.Size++ })
	add("modified", func(o *Object, _ *Record) { o.Modified++ })
	add("tag", func(o *Object, _ *Record) { o.Tag[0]++ })
	add("key", func(_ *Object, r *Record) { r.Key = "l" })
	add("no key", func(_ *Object, r *Record) { r.Key = "" })
	add("class", func(_ *Object, r *Record) { r.Class = 0 })
	add("value", func(_ *Object, r *Record) { r.Values[0] = "w" })
	add("offset", func(_ *Object, r *Record) { r.Ranges[1].Offset++ })
	add("length", func(_ *Object, r *Record) { r.Ranges[0].Length++ })
	add("missing", func(_ *Object, r *Record) { r.Ranges[1] = Range{Length: Missing} })
	add("field", func(*Object, *Record) {}, "jpg", "txt")
}

func TestLackingNamesTheFieldsThatSomeSamplesLack(t *testing.T) {
	if diff := cmp.Diff([]string{"seg.png"}, smallRecords(t).Lacking()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
