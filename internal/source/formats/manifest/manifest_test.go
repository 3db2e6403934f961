package manifest

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/formats"
	"github.com/hdmlp/hdmlp/internal/source/objects/directory"
	"github.com/hdmlp/hdmlp/internal/source/records"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// list is what a manifest has.
type list struct {
	names  []string
	fields []string
	ranges [][]source.Range // by field and record; nil: whole objects, by of
	of     [][]int          // by field and record: the object; -1: none
	keys   []string
	runs   [][]run // by field, in place of ranges
}

// encode returns the manifest as a process would send it.
func encode(l list) []byte {
	h := header{
		Objects: len(l.names), Fields: l.fields, Whole: l.ranges == nil && l.runs == nil, Keys: -1,
	}
	if l.runs == nil {
		h.Samples = len(l.of[0])
	} else {
		for _, r := range l.runs[0] {
			h.Samples += int(r.count)
		}
	}
	texts := func(list []string) (ends, all []byte) {
		for _, s := range list {
			all = append(all, s...)
			ends = binary.LittleEndian.AppendUint64(ends, uint64(len(all)))
		}
		return ends, all
	}
	var rows [][]byte
	ends, all := texts(l.names)
	h.Names = len(all)
	rows = append(rows, ends, all)
	var objects, offsets, lengths []byte
	for f := range l.of {
		for id, o := range l.of[f] {
			objects = binary.LittleEndian.AppendUint32(objects, uint32(int32(o)))
			if l.ranges != nil {
				offsets = binary.LittleEndian.AppendUint64(offsets, uint64(l.ranges[f][id].Offset))
				lengths = binary.LittleEndian.AppendUint64(lengths, uint64(l.ranges[f][id].Length))
			}
		}
	}
	for _, field := range l.runs {
		h.Runs = append(h.Runs, len(field))
		var all []byte
		for _, r := range field {
			for _, n := range []int64{r.count, r.object, r.offset, r.stride, r.length} {
				all = binary.LittleEndian.AppendUint64(all, uint64(n))
			}
		}
		rows = append(rows, all)
	}
	if l.runs == nil {
		rows = append(rows, objects)
	}
	if l.ranges != nil {
		rows = append(rows, offsets, lengths)
	}
	if l.keys != nil {
		ends, all := texts(l.keys)
		h.Keys = len(all)
		rows = append(rows, ends, all)
	}
	head, _ := json.Marshal(h) // of such a struct it never fails
	data := binary.LittleEndian.AppendUint32([]byte(magic), uint32(len(head)))
	data = append(data, head...)
	for _, row := range rows {
		for len(data)%8 > 0 {
			data = append(data, 0)
		}
		data = append(data, row...)
	}
	return data
}

// two is a dataset of two files: a, with 10 bytes, and sub/b, with 20.
func two(t testing.TB) *directory.Directory {
	t.Helper()
	root := t.TempDir()
	for name, size := range map[string]int{"a": 10, "sub/b": 20, "empty": 0} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, make([]byte, size), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	d, err := directory.Open(root, directory.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func index(t testing.TB, data []byte) (*source.Index, error) {
	t.Helper()
	return Index(t.Context(), two(t), nil, formats.Options{Manifest: source.NewManifest(data)})
}

func TestRecordsAreThoseOfTheList(t *testing.T) {
	x, err := index(t, encode(list{
		names: []string{"sub/b", "a", "empty"}, fields: []string{"jpg", "json"},
		of: [][]int{{0, 1, 0}, {1, -1, 2}}, keys: []string{"x", "", "z"},
	}))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for id := range x.Len() {
		text := x.Name(id)
		for _, r := range x.Ranges(nil, id) {
			name := "-"
			if r.Length != source.Missing {
				name = x.Object(r.Object).Name
			}
			text += fmt.Sprintf(" %s[%d:%d]", name, r.Offset, r.Length)
		}
		got = append(got, text)
	}
	want := "[x sub/b[0:20] a[0:10]  a[0:10] -[0:-1] z sub/b[0:20] empty[0:0]]"
	if fmt.Sprint(got) != want || fmt.Sprint(x.Fields()) != "[jpg json]" || x.Labelled() {
		t.Errorf("%v, fields %v", got, x.Fields())
	}
}

// TestRecordsMayHaveNoField: such a record is empty, and reading it reads no file.
func TestRecordsMayHaveNoField(t *testing.T) {
	d := two(t)
	data := source.NewManifest(encode(list{
		names: []string{"a"}, fields: []string{"f", "g"}, of: [][]int{{0, -1}, {-1, -1}},
	}))
	x, err := Index(t.Context(), d, nil, formats.Options{Manifest: data})
	if err != nil {
		t.Fatal(err)
	}
	s := records.New(d, x)
	if size := x.Size(1); size != 0 || x.Name(1) != "" || s.Path(1) != "" {
		t.Errorf("%d bytes, called %q, at %q", size, x.Name(1), s.Path(1))
	}
	for _, stamp := range []func() (source.Stamp, error){
		func() (source.Stamp, error) { return s.Read(t.Context(), 1, nil) },
		func() (source.Stamp, error) { return s.Stat(t.Context(), 1) },
	} {
		if got, err := stamp(); err != nil || got != x.Stamp(1) {
			t.Errorf("%v, %v", got, err)
		}
	}
}

func TestRangesMayEndWithTheirFile(t *testing.T) {
	x, err := index(t, encode(list{
		names: []string{"a", "sub/b"}, fields: []string{"f"}, of: [][]int{{0, 1, 0}},
		ranges: [][]source.Range{{{Offset: 3, Length: 4}, {Offset: 5, Length: toEnd}, {Offset: 10}}},
	}))
	if err != nil {
		t.Fatal(err)
	}
	var sizes []int64
	for id := range x.Len() {
		sizes = append(sizes, x.Size(id))
	}
	if fmt.Sprint(sizes) != "[4 15 0]" {
		t.Errorf("%v", sizes)
	}
}

func TestBadListsAreRefused(t *testing.T) {
	whole := func(change func(l *list)) []byte {
		l := list{names: []string{"a"}, fields: []string{"f"}, of: [][]int{{0, 0}}}
		change(&l)
		return encode(l)
	}
	good := whole(func(*list) {})
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"empty":    {nil, "does not begin as one does"},
		"header":   {append([]byte(magic), 255, 255, 255, 0), "its header has"},
		"JSON":     {append([]byte(magic), "\x02\x00\x00\x00[]"...), "its header: json"},
		"cut":      {good[:len(good)-1], "which is too few"},
		"longer":   {append(good, 1), "and should have"},
		"missing":  {whole(func(l *list) { l.names[0] = "none" }), "record 0, field f: "},
		"up":       {whole(func(l *list) { l.names[0] = "../a" }), "not below the dataset's root"},
		"absolute": {whole(func(l *list) { l.names[0] = "/a" }), "not below the dataset's root"},
		"unclean":  {whole(func(l *list) { l.names[0] = "sub//b" }), "not below the dataset's root"},
		"a directory": {
			whole(func(l *list) { l.names[0] = "sub" }), "it is not a regular file",
		},
		"object": {whole(func(l *list) { l.of[0][1] = 1 }), "record 1, field f: object 1 of 1"},
		"range": {whole(func(l *list) {
			l.ranges = [][]source.Range{{{Offset: 0, Length: 10}, {Offset: 4, Length: 7}}}
		}), "record 1, field f: 7 bytes from byte 4 on of a, which has 10"},
		"offset": {whole(func(l *list) {
			l.ranges = [][]source.Range{{{Offset: 11, Length: toEnd}, {}}}
		}), "record 0, field f: -1 bytes from byte 11 on"},
	} {
		if _, err := index(t, c.data); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestACancelledIndexEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Index(ctx, two(t), nil, formats.Options{Manifest: source.NewManifest(encode(list{
		names: []string{"a"}, fields: []string{"f"}, of: [][]int{{0}},
	}))})
	if err == nil {
		t.Error("an index, though nothing was to be read any more")
	}
}

// FuzzParse: whatever a process sends, memory is bounded by it, and each section is within it.
func FuzzParse(f *testing.F) {
	f.Add(encode(list{
		names: []string{"a", "b"}, fields: []string{"x", "y"}, of: [][]int{{0, 1}, {1, -1}},
		keys: []string{"k", "l"},
	}))
	f.Add(encode(list{
		names: []string{"a"}, fields: []string{"x"}, of: [][]int{{0}},
		ranges: [][]source.Range{{{Offset: 1, Length: 2}}},
	}))
	f.Add(encode(list{
		names: []string{"a"}, fields: []string{"x", "y"},
		runs: [][]run{{{2, 0, 1, 3, 4}, {1, 0, 9, 0, 1}}, {{3, 0, 0, 1, 2}}},
	}))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := parse(data)
		if err != nil {
			return
		}
		listed := make([]source.Object, s.Objects)
		for i := range listed {
			listed[i] = source.Object{Name: text(s.nameEnds, s.names, i), Size: 100}
		}
		at := s.at
		if s.Runs != nil {
			at = newCursor(s).at
		}
		for id := range min(s.Samples, 1<<12) {
			s.key(id)
			for f := range s.Fields {
				r, err := at(f, id, listed)
				if err == nil && r.Length != source.Missing && (r.Offset < 0 || r.Length < 0 ||
					r.Offset+r.Length > 100) {
					t.Fatalf("%+v", r)
				}
			}
		}
	})
}
